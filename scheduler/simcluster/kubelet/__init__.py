"""What runs pods: one simulated kubelet per simulated node."""
