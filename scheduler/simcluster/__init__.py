"""The simulated Kubernetes cluster: an API server over HTTP with nodes, kubelets, device plugins,
DCGM exporters and faults, in a process of its own. It speaks the protocol of a real cluster, so its
users know nothing of it but a kubeconfig. Doors: `cluster.SimCluster` (in a running event loop),
`background.ThreadedSimCluster` (for synchronous code), `python -m scheduler.simcluster`."""
