"""Time as it is known beforehand: planned ends, windows, reservations."""
