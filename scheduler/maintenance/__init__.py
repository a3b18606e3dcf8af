"""Maintenance windows without rows: recurrences, who is meant, when what happens, and the calendar's file format. Pure:
no models, no clock. Called by `scheduler.selectors.windows` and `scheduler.services.windows`."""
