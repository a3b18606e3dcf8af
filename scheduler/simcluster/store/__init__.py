"""Versioned objects with history, selectors and watches: what etcd and the watch cache are."""
