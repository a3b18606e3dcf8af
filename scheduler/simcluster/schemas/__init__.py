"""Field tables of the Kubernetes types, generated from the official client."""
