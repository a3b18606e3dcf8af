"""The loop: lease, plan, commit, again. Started by the pacemaker, poked by Celery messages."""
