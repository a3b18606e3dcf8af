"""`make demo` itself: what it announces, how soon it is back, and that Ctrl-C leaves nothing."""

import json
import signal
import stat
from pathlib import Path

import pytest

from tests.e2e.stack import (
    Stack,
    alive,
    running_demo,
    start_demo,
    stop_demo,
    until_ready,
    wait_until,
)

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.xdist_group("life")]

SECOND_START_SECONDS = 15.0
PEOPLE = {"admin", "olivia", "ravi", "mei", "vera", "ines", "sam"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo's folder that was started once and stopped: what a second start finds."""
    var = tmp_path_factory.mktemp("life")
    with running_demo(var) as stack:
        job = stack.api().submit(name="kept", run_seconds=1)
        stack.api().until(job["id"], "finished", 20)
    return var


def test_a_second_start_is_ready_in_fifteen_seconds_and_remembers(folder: Path) -> None:
    supervisor = start_demo(folder)
    try:
        took = wait_until(lambda: (folder / "demo.json").exists(), 60)
        stack = Stack(folder, supervisor, until_ready(folder, supervisor))
        assert "kept" in [job["name"] for job in stack.api().get("jobs/")["results"]]
    finally:
        stop_demo(supervisor)
    assert took <= SECOND_START_SECONDS


def test_what_is_announced_lets_a_script_log_in(folder: Path) -> None:
    with running_demo(folder) as stack:
        found = json.loads((folder / "demo.json").read_text())
        assert set(found) == {"url", "token", "logins", "kubeconfig"}
        assert {person["user"] for person in found["logins"]} == PEOPLE
        assert found["token"] == stack.token_of("ravi")
        assert stat.S_IMODE((folder / "demo.json").stat().st_mode) == 0o600
        said = (folder / "demo.out").read_text()
        assert found["url"] in said
        assert found["token"] in said
        for user in PEOPLE - {"admin"}:
            assert stack.api(user).call("GET", "jobs/").status_code == 200
    assert not (folder / "demo.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_however_it_is_stopped(folder: Path, number: signal.Signals) -> None:
    supervisor = start_demo(folder)
    try:
        until_ready(folder, supervisor)
        pids = set(json.loads((folder / "pids.json").read_text()).values())
        assert len(pids) >= 8
        supervisor.send_signal(number)
        wait_until(lambda: supervisor.poll() is not None, 20)
        wait_until(lambda: not any(alive(pid) for pid in pids), 5)
    finally:
        stop_demo(supervisor)
    assert number == signal.SIGKILL or supervisor.returncode == 0


def test_a_taken_port_is_named_and_nothing_starts(folder: Path) -> None:
    with running_demo(folder) as stack:
        port = stack.url.rpartition(":")[2]
        second = start_demo(folder.with_name("second"), PORT=port)
        assert second.wait(20) == 1
        assert f"Port {port} is in use" in (folder.with_name("second") / "demo.out").read_text()
        third = start_demo(folder)
        assert third.wait(20) == 1
        assert alive(stack.pids()["supervisor"])
