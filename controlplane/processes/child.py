"""Starting and stopping one child process so that nothing of it can be left behind.

Each child leads a session of its own, so that Ctrl-C reaches the supervisor alone, and so that a stubborn child
is killed with everything it started. On Linux the kernel kills children whose supervisor died.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.processes.spec import ProcessSpec

PR_SET_PDEATHSIG = 1
LONGEST_LINE_BYTES = 1024 * 1024
# Loaded before any fork: nothing may be imported or allocated between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Child:
    """A started process and what it says, both outputs in one stream."""

    process: asyncio.subprocess.Process
    output: asyncio.StreamReader


async def start(spec: ProcessSpec) -> Child:
    """Start it. Raises OSError where the program is missing.

    The pipe is our own: asyncio's would make `wait` last until the last grandchild had closed it.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *spec.command,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(spec.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    output = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", buffering=0)
    )
    return Child(process, output)


def _die_with_parent(parent: int) -> Callable[[], None]:
    """What the child runs between fork and exec: nothing here may import or take a lock."""

    def set_death_signal() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before we asked
                os._exit(1)

    return set_death_signal


async def stop(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """Ask with SIGTERM, insist with SIGKILL to the whole group, and wait until it is gone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_seconds)
    kill_group(process.pid)
    await process.wait()


def kill_group(pid: int) -> None:
    """Kill what is left of the child's session, the child included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
