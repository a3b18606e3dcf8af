"""The planner: pure functions over frozen snapshots. No Django, clock, randomness or I/O."""
