"""The Kubernetes API: from an HTTP request to the store and back."""
