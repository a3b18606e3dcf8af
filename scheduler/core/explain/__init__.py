"""Why a job waits, in numbers; and what would change it."""
