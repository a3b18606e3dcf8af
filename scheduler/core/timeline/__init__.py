"""Time as it is planned: what is free when, bookings and what may start beside them."""
