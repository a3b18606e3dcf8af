"""What may be read of the scheduler's world, by whom: nodes, map, asks. Called by doors, services and snapshot."""
