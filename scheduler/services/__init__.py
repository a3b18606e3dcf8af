"""What people do in the scheduler's world: ask what if, cordon nodes. Called by the doors; nothing here plans."""
