"""The what-if process: answers questions over HTTP from warm snapshots (DESIGN section 3).

`server` is the door, `mirror` keeps the snapshots, `questions` asks the planner. Who may see what of an answer is
decided in the web process (`scheduler.services.whatif`); this one trusts whoever knows the project's key.
"""
