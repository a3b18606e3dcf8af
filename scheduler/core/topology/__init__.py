"""Where nodes are: the tree of domains, and how whole it still is."""
