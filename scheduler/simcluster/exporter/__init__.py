"""DCGM exporters: metrics text per node, in three generations of names."""
