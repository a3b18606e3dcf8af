"""Forms of the pages about what exists and is decided; `changes()` of each is what the service reads."""
