"""The supervisor: what dies comes back, what stops is gone, and nothing outlives it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.processes.spec import ProcessSpec, pause_before_restart
from controlplane.processes.supervisor import Supervisor

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER


def python(name: str, code: str, grace_seconds: float = 8.0) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", code), grace_seconds=grace_seconds)


def lives(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def eventually(holds: Callable[[], bool], within_seconds: float = 10.0) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within_seconds, "did not happen in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def pid_of(supervisor: Supervisor, name: str) -> int | None:
    process = supervisor.watched[name].process
    return process.pid if process else None


async def test_a_killed_process_is_back_within_two_seconds(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        supervisor.add(python("sleeper", SLEEPER))
        await eventually(lambda: pid_of(supervisor, "sleeper") is not None)
        first = pid_of(supervisor, "sleeper")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        took = await eventually(lambda: pid_of(supervisor, "sleeper") not in {None, first})
    assert took < 2
    said = (tmp_path / "sleeper.log").read_text()
    times = re.findall(r"^(\S+) \[supervisor\] .*starting it again", said, re.MULTILINE)
    began = datetime.now(UTC) - datetime.fromisoformat(times[0])
    assert timedelta() <= began < timedelta(minutes=5)


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        supervisor.add(python("stubborn", STUBBORN, grace_seconds=0.3))
        log = tmp_path / "stubborn.log"
        await eventually(lambda: log.exists() and b"up" in log.read_bytes())
        pid = pid_of(supervisor, "stubborn")
    assert pid is not None
    assert not lives(pid)


async def test_grandchildren_end_with_their_process(tmp_path: Path) -> None:
    forks = "import subprocess, time\np = subprocess.Popen(['sleep', '600'])\nprint(p.pid, flush=True)\ntime.sleep(600)"
    async with Supervisor(tmp_path) as supervisor:
        supervisor.add(python("parent", forks))
        log = tmp_path / "parent.log"
        await eventually(lambda: log.exists() and log.read_text().strip().isdigit())
        grandchild = int(log.read_text())
        assert lives(grandchild)
    await eventually(lambda: not lives(grandchild))


async def test_a_step_answers_its_exit_code_and_keeps_its_output(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        code = await supervisor.run_once(python("step", "print('half way'); raise SystemExit(3)"))
    assert code == 3
    assert "half way" in (tmp_path / "step.log").read_text()


async def test_a_missing_program_is_reported_not_raised(tmp_path: Path) -> None:
    async with Supervisor(tmp_path) as supervisor:
        supervisor.add(ProcessSpec("ghost", ("/nonexistent/program",)))
        log = tmp_path / "ghost.log"
        await eventually(lambda: log.exists() and "cannot be started" in log.read_text())


@pytest.mark.parametrize("deaths", [1, 3, 5])
def test_the_first_deaths_are_answered_at_once(deaths: int) -> None:
    assert pause_before_restart(deaths) < 1


def test_a_crash_loop_is_slowed_down_up_to_half_a_minute() -> None:
    assert pause_before_restart(8) > 1
    assert pause_before_restart(50) == 30


def supervised_in_a_process(folder: Path) -> "subprocess.Popen[bytes]":
    """A supervisor of one child in a process of its own; the child's pid lands in pids.json."""
    code = f"""
        import asyncio, pathlib, sys
        from controlplane.processes.spec import ProcessSpec
        from controlplane.processes.supervisor import Supervisor

        async def main():
            folder = pathlib.Path({str(folder)!r})
            async with Supervisor(folder, pid_file=folder / "pids.json") as supervisor:
                supervisor.add(ProcessSpec("sleeper", (sys.executable, "-c", {SLEEPER!r})))
                await supervisor.until_stopped()

        asyncio.run(main())
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_no_child_outlives_a_supervisor_however_it_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    supervisor = supervised_in_a_process(tmp_path)
    log = tmp_path / "sleeper.log"
    await eventually(lambda: log.exists() and b"up" in log.read_bytes())
    children = children_of(supervisor.pid)
    assert children
    supervisor.send_signal(number)
    await eventually(lambda: supervisor.poll() is not None)
    await eventually(lambda: not any(lives(pid) for pid in children))
