"""The loops of the controller manager and a small default scheduler."""
