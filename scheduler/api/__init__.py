"""REST doors of what exists and is decided: what if, explain, logs, nodes, topology. Rights are the services'."""
