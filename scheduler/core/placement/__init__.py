"""Where a gang goes: capacity per node, the choice of domains, seats and ranks."""
