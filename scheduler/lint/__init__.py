"""What is wrong with a cluster's nodes before any job meets it: pure checks over nodes as last observed.

`scheduler.selectors.lint` reads the rows and calls `run.lint`; the cluster page and `clusters/C/lint/` show what
it answers. Facts about labels: NVIDIA's GPU Feature Discovery, GPU Operator and Topograph.
"""
