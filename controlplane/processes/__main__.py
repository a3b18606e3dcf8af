"""The door of `make run`: `python -m controlplane.processes`. The same processes as the demo, on a real cluster."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.processes import lineup
from controlplane.processes.spec import ProcessSpec
from controlplane.processes.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[2]
# Without these an installation would lose sessions or secrets, or keep its rows in a file by accident.
REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY")


@dataclass(frozen=True, slots=True)
class Installation:
    """Where it listens and keeps its files."""

    host: str
    port: int
    var: Path

    @property
    def logs(self) -> Path:
        """What the processes say, a file each."""
        return self.var / "process-logs"

    @property
    def clusters(self) -> Path:
        """Written by `prepare_run`: the clusters to watch."""
        return self.var / "clusters.json"


def main() -> int:
    """Run until SIGINT or SIGTERM. Exit codes: 0 stopped, 1 could not start, 2 a setting is missing."""
    os.chdir(ROOT)
    missing = missing_settings(os.environ)
    if missing:
        print(f"Set {', '.join(missing)} (docs/operations.md says how).", file=sys.stderr)
        return 2
    os.environ.setdefault("HASHED_STATIC", "1")
    installation = Installation(
        # Pods call PUBLIC_URL from other machines.
        host=os.environ.get("HOST", "0.0.0.0"),
        port=int(os.environ.get("PORT") or 8000),
        var=Path(os.environ.get("VAR") or ROOT / "var").resolve(),
    )
    return asyncio.run(serve(installation))


def missing_settings(environment: Mapping[str, str]) -> list[str]:
    """Names of required variables that are not set."""
    return [name for name in REQUIRED if not environment.get(name)]


async def serve(installation: Installation) -> int:
    """Prepare, start everything, keep it running."""
    installation.var.mkdir(parents=True, exist_ok=True)
    pid_file = installation.var / "pids.json"
    async with Supervisor(installation.logs, echo=True, pid_file=pid_file) as supervisor:
        clusters = str(installation.clusters)
        step = ProcessSpec("prepare", (*lineup.MANAGE, "prepare_run", "--clusters", clusters))
        if await supervisor.run_once(step):
            return 0 if supervisor.is_stopping else 1
        names: list[str] = json.loads(installation.clusters.read_text())
        plane = lineup.control_plane(installation.host, installation.port, names)
        for spec in [*plane, *lineup.in_the_background()]:
            supervisor.add(spec)
        await supervisor.until_stopped()
    return 0


if __name__ == "__main__":
    sys.exit(main())
