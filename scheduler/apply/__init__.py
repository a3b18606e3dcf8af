"""Plans → rows. The only writer of placements, seats, verdicts and estimates.

Called by `scheduler.loop.cycle` (`plan.apply_plan`) and, when a pod is seen gone, by the cluster process
(`release.release_placements`). Every transaction that commits part of a plan begins by holding the lease.
"""
