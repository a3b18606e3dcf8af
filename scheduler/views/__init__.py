"""Pages and fragments about what exists and is decided: Now, map, nodes, logs, verdicts, previews."""
