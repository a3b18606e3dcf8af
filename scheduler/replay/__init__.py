"""Replay a trace on the planner in virtual time. Pure: no clock, no files, no Django."""
