"""The job contract, read field by field: what was sent becomes a `specs.JobSpec`, or errors with pointers. Pure.

`read_job` in `jobs` is the entry; `services.validation` calls it with what the queue offers.
"""
