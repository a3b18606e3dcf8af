"""Simulated machines: GPU hardware, device plugins, labels and the Node objects made of them."""
