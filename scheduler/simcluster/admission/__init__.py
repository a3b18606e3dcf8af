"""What stands between a decoded object and the store: defaults, validation, quota, policy."""
