"""Keeps PostgreSQL and Redis running for one test session: `python -m tests.services.keeper`.

A process of its own, so that the services end when pytest ends in any way, `kill -9` included.
`tests.services.session` starts it; it writes `ready` (or `failed`, with the cause) into the session's folder.
"""

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.services.binaries import postgresql_bin, redis_server
from tests.services.session import START_SECONDS, Session, current_session

# Durability is what tests do not need.
POSTGRESQL_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
}


def main() -> int:
    """Start both, wait for the owner to end or for SIGTERM, stop both."""
    session = current_session()
    folder = Path(session.folder)
    (folder / "keeper.pid").write_text(str(os.getpid()))
    wake_read, wake_write = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(wake_write, b"."))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(start_postgresql(session))
        started.append(start_redis(session))
        (folder / "ready").touch()
        wait_for_end_of(session.owner_pid, wake_read)
    except (OSError, subprocess.SubprocessError, TimeoutError) as error:
        (folder / "failed").write_text(f"{error}\n{postgresql_log(folder)}")
        return 1
    finally:
        stop(started)
        (folder / "keeper.pid").unlink(missing_ok=True)
        if not owner_lives(session.owner_pid):
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def start_postgresql(session: Session) -> "subprocess.Popen[bytes]":
    """Make a cluster in the session's folder and serve it on its port. As user postgres when root."""
    programs = postgresql_bin()
    if programs is None:
        raise FileNotFoundError("initdb")
    folder = Path(session.folder) / "postgresql"
    folder.mkdir()
    as_user, preexec = server_user(Path(session.folder), folder)
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder)}
    made_with = [
        str(programs / "initdb"),
        f"--pgdata={folder / 'data'}",
        "--username=muster",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    ]
    subprocess.run(
        made_with,
        check=True,
        cwd=folder,
        env=environment,
        user=as_user,
        stdout=subprocess.DEVNULL,
        timeout=START_SECONDS,
    )
    options = [f"-c{name}={value}" for name, value in POSTGRESQL_SETTINGS.items()]
    server = subprocess.Popen(
        [
            str(programs / "postgres"),
            f"-D{folder / 'data'}",
            f"-p{session.postgresql_port}",
            f"-k{folder}",
            *options,
        ],
        cwd=folder,
        env=environment,
        preexec_fn=preexec,
        stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    answers = [
        str(programs / "pg_isready"),
        "-q",
        "-h127.0.0.1",
        f"-p{session.postgresql_port}",
    ]
    wait_until(lambda: subprocess.run(answers, check=False).returncode == 0, server)
    return server


def server_user(session_folder: Path, folder: Path) -> tuple[int | None, Callable[[], None] | None]:
    """PostgreSQL refuses to run as root: hand the folder to user postgres and switch to it."""
    if os.geteuid() != 0:
        return None, None
    account = pwd.getpwnam("postgres")
    session_folder.chmod(0o711)
    os.chown(folder, account.pw_uid, account.pw_gid)

    def become_postgres() -> None:
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)

    return account.pw_uid, become_postgres


def start_redis(session: Session) -> "subprocess.Popen[bytes]":
    """A Redis that keeps nothing on disk."""
    program = redis_server()
    if program is None:
        raise FileNotFoundError("redis-server")
    port = str(session.redis_port)
    command = [str(program), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly"]
    server = subprocess.Popen([*command, "no", "--dir", session.folder], stdout=subprocess.DEVNULL)
    ping = [str(program.with_name("redis-cli")), "-p", port, "ping"]
    wait_until(
        lambda: b"PONG" in subprocess.run(ping, check=False, capture_output=True).stdout, server
    )
    return server


def wait_until(answers: Callable[[], bool], server: "subprocess.Popen[bytes]") -> None:
    """Poll a server that was just started. Raises when it ends or stays silent."""
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        if server.poll() is not None:
            raise OSError(f"{server.args!r} ended with {server.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.args!r} does not answer")
        time.sleep(0.03)


def wait_for_end_of(pid: int, wake: int) -> None:
    """Block until the process ends or something is written to `wake`."""
    try:
        owner = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old kernel
        while owner_lives(pid) and not select.select([wake], [], [], 0.5)[0]:
            pass
        return
    select.select([owner, wake], [], [])


def owner_lives(pid: int) -> bool:
    """Whether the session's pytest process still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def stop(servers: "list[subprocess.Popen[bytes]]") -> None:
    """End at once: what they hold is thrown away anyway. SIGQUIT is PostgreSQL's immediate shutdown."""
    for server in servers:
        server.send_signal(signal.SIGQUIT if "postgres" in str(server.args) else signal.SIGTERM)
    for server in servers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        if server.poll() is None:
            server.kill()


def postgresql_log(folder: Path) -> str:
    """The end of the server's log, for the message of a failed start."""
    log = folder / "postgresql" / "log"
    return log.read_text()[-2000:] if log.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
