"""The loop: lease, plan, commit, again. Started by `scheduler.pacemaker`, poked by `scheduler.tasks`."""
