"""`python -m scheduler.simcluster`: a simulated cluster in a process of its own."""

import argparse
import sys

from scheduler.simcluster.door import add_arguments, run


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Parses the arguments and serves."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.simcluster", description=__doc__)
    add_arguments(parser)
    run(parser.parse_args(), _say)


if __name__ == "__main__":
    main()
