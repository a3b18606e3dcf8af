"""The `cluster` process: makes Kubernetes look like the rows, and writes what it sees back into rows.

One process a cluster. `process` is the loop; `view` and `ledger` are what it knows of the two
sides; `story`, `ends`, `wanted` and `describe` decide, purely; `tick` writes, in one transaction;
`enact` acts. Started by the command `run_cluster`.
"""
