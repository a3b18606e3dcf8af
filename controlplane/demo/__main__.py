"""The door of `make demo`: `python -m controlplane.demo`."""

import asyncio
import fcntl
import os
import sys
from pathlib import Path

from controlplane.demo.place import PortTakenError, environment_of, place_from
from controlplane.demo.stage import play

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the demo until Ctrl-C. Exit codes: 0 stopped by a person, 1 could not start."""
    os.chdir(ROOT)
    try:
        place = place_from(os.environ, ROOT)
    except PortTakenError as error:
        print(error, file=sys.stderr)
        return 1
    place.var.mkdir(parents=True, exist_ok=True)
    with (place.var / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another demo runs in {place.var}. Choose a folder: VAR=…", file=sys.stderr)
            return 1
        os.environ.update(environment_of(place))
        return asyncio.run(play(place))


if __name__ == "__main__":
    sys.exit(main())
