"""`manage.py replay`: a trace through the planner's one entry point, in virtual time."""

from __future__ import annotations

import gzip
import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduler.replay.engine import POLICIES, Replay, policy_queue
from scheduler.replay.report import report
from scheduler.replay.trace import TraceError, read_jobs, read_nodes, shuffled


def read_lines(path: Path) -> list[str]:
    """The lines of a file, gzipped or not. Raises CommandError naming the file."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                return stream.read().splitlines()
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}") from error


class Command(BaseCommand):
    """Replays a trace and prints its figures as one JSON object."""

    help = "Replay a trace in virtual time through the planner."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The arguments of the contract."""
        parser.add_argument("jobs", type=Path, metavar="JOBS.csv[.gz]")
        parser.add_argument("--nodes", type=Path, required=True, metavar="NODES.csv")
        parser.add_argument("--policy", choices=POLICIES, default="default")
        parser.add_argument("--shuffle", type=int, metavar="SEED")
        parser.add_argument("--json", action="store_true", help="JSON (the default and only form)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, replay, print."""
        started = time.monotonic()
        try:
            nodes, levels = read_nodes(read_lines(options["nodes"]))
            jobs = read_jobs(read_lines(options["jobs"]), levels)
        except TraceError as error:
            raise CommandError(str(error)) from error
        for path, rows, what in ((options["nodes"], nodes, "node"), (options["jobs"], jobs, "job")):
            if not rows:
                raise CommandError(f"{path}: holds no {what}, so there is nothing to replay")
        if options["shuffle"] is not None:
            jobs = shuffled(jobs, options["shuffle"])
        replay = Replay(nodes, levels, policy_queue(options["policy"]))
        replay.run(jobs)
        wall = time.monotonic() - started
        figures = report(replay.runs, replay.never_fit, nodes, wall)
        self.stdout.write(json.dumps(figures))
