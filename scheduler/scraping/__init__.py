"""The `health` process: finds exporters, scrapes them (or asks a Prometheus server), has the ticker judge.

Started by the command `run_health`. The event loop scrapes; one thread of its own does all database work.
"""
