"""Starts Muster's processes and keeps them running: for `make demo` (controlplane.demo) and `make run`.

No Django here: the supervisor stays small, starts in a moment and depends on nothing that it watches.
"""
