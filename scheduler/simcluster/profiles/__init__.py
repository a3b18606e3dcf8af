"""Descriptions of clusters: YAML files and what reads them."""
