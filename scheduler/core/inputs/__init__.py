"""What the planner reads: frozen descriptions of a cluster, its quotas and its jobs."""
