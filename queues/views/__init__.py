"""Pages about what is asked and allowed: jobs, the submit form, queues, quotas."""
