"""GPU health, pure: readers of metrics, conditions and kernel lines; rules; what follows from them.

No Django, no clock, no I/O: `now` is an argument everywhere. Called by `scheduler.services.health_*` and by the
`health` process.
"""
