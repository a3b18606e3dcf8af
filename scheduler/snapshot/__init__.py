"""Rows → `core.Snapshot`: a cold build in a few queries, and a warm one that reads what the log says changed.

The loop and the what-if process keep one `warm.WarmSnapshot` a cluster. Nothing here writes.
"""
