"""One pass over the waiting jobs: gates, attempts, starts, bookings, verdicts."""
