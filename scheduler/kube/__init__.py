"""The only room that speaks Kubernetes; knows no models, nor Django.

Called by the `cluster` process (scheduler.reconcile) and, for logs, by the web process. Hot paths
are raw JSON over aiohttp; the official client is used for configuration and credentials alone.
"""
