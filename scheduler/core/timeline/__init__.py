"""The time axis: planned ends, windows, bookings."""
