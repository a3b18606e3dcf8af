"""The REST doors of jobs, queues, quotas and the catalogue: they read requests, call services, answer."""
