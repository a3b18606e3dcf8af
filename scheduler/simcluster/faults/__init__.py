"""Faults on command and by seeded schedule, with the control API under /_sim/."""
