"""The first rows of an installation: the catalogue, tenants with quota, queues, the first admin.

`bootstrap` makes them from a real cluster (`make run`); controlplane.demo.seed makes the demo's. Both go through the
services where there is one, and both may run at every start: what exists is left as people have changed it.
"""
