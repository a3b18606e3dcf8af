"""`make demo` itself: what it announces, how soon it is back, and that stopping it leaves nothing."""

import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, alive, start_demo, stop_demo, until_ready, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SECOND_START_SECONDS = 15.0
PEOPLE = {"admin", "olivia", "ravi", "mei", "vera", "ines", "sam"}
PROCESSES = {
    *("supervisor", "kubernetes", "web", "scheduler", "worker", "beat", "whatif"),
    *("cluster-demo", "health-demo"),
}


@dataclass(frozen=True, slots=True)
class FirstLife:
    """What a demo on an empty folder did, from its start to SIGTERM."""

    var: Path
    announcement: dict[str, Any]
    announcement_mode: int
    said: str
    statuses: dict[str, int]


@pytest.fixture(scope="module")
def first_life(tmp_path_factory: pytest.TempPathFactory) -> FirstLife:
    """Start it, use it, stop it as a service manager would."""
    var = tmp_path_factory.mktemp("life")
    supervisor = start_demo(var)
    try:
        stack = Stack(var, supervisor, until_ready(var, supervisor))
        job = stack.api().submit(name="kept", run_seconds=1)
        stack.api().until(job["id"], "finished", 20)
        life = FirstLife(
            var=var,
            announcement=stack.announcement,
            announcement_mode=stat.S_IMODE((var / "demo.json").stat().st_mode),
            said=(var / "demo.out").read_text(),
            statuses={u: stack.api(u).call("GET", "jobs/").status_code for u in PEOPLE},
        )
        assert_nothing_is_left(stack, signal.SIGTERM)
        return life
    finally:
        stop_demo(supervisor)


@pytest.fixture
def second_life(first_life: FirstLife) -> Iterator[tuple[Stack, float]]:
    """The same folder again; with the seconds it took.

    Other tests may keep the machine busy meanwhile: the best of three starts says how long one takes.
    """
    supervisor, took = timed_start(first_life.var)
    for _another in range(2):
        if took > SECOND_START_SECONDS:
            stop_demo(supervisor)
            supervisor, again = timed_start(first_life.var)
            took = min(took, again)
    try:
        yield Stack(first_life.var, supervisor, until_ready(first_life.var, supervisor)), took
    finally:
        stop_demo(supervisor)


def timed_start(var: Path) -> tuple["subprocess.Popen[bytes]", float]:
    """Start the demo and wait until it announces itself; with the seconds that this took."""
    supervisor = start_demo(var)
    try:
        return supervisor, wait_until(lambda: (var / "demo.json").exists(), 90)
    except BaseException:
        stop_demo(supervisor)
        raise


def assert_nothing_is_left(stack: Stack, number: signal.Signals) -> None:
    """Send the signal to the supervisor alone; soon no process of the demo exists."""
    wait_until(lambda: stack.pids().keys() == PROCESSES, 10)
    pids = stack.pids()
    assert stack.supervisor is not None
    stack.supervisor.send_signal(number)
    wait_until(lambda: stack.supervisor is not None and stack.supervisor.poll() is not None, 20)
    wait_until(lambda: not any(alive(pid) for pid in pids.values()), 5)


def test_what_is_announced_lets_a_person_and_a_script_in(first_life: FirstLife) -> None:
    found = first_life.announcement
    assert set(found) == {"url", "token", "logins", "kubeconfig"}
    assert {person["user"] for person in found["logins"]} == PEOPLE
    assert all(set(p) == {"user", "password", "token", "tenant", "role"} for p in found["logins"])
    assert found["token"] == next(p["token"] for p in found["logins"] if p["user"] == "ravi")
    assert first_life.announcement_mode == 0o600
    for said in ("ready", found["url"], found["token"], "muster", *PEOPLE):
        assert said in first_life.said
    assert set(first_life.statuses.values()) == {200}
    assert not (first_life.var / "demo.json").exists()


def test_a_second_start_is_ready_in_fifteen_seconds_remembers_and_ends_on_ctrl_c(
    second_life: tuple[Stack, float],
) -> None:
    stack, took = second_life
    assert "kept" in [job["name"] for job in stack.api().get("jobs/")["results"]]
    assert stack.announcement["token"] == stack.token_of("ravi")
    assert_nothing_is_left(stack, signal.SIGINT)
    assert stack.supervisor is not None
    assert stack.supervisor.returncode == 0
    assert took <= SECOND_START_SECONDS


def test_a_second_demo_is_told_why_it_cannot_start_and_kill_9_leaves_nothing(
    second_life: tuple[Stack, float],
) -> None:
    stack, _took = second_life
    port = stack.url.rpartition(":")[2]
    elsewhere = stack.var.with_name("elsewhere")
    assert start_demo(elsewhere, PORT=port).wait(30) == 1
    assert f"Port {port} is in use" in (elsewhere / "demo.out").read_text()
    said = json.loads((stack.var / "demo.json").read_text())
    assert start_demo(stack.var).wait(30) == 1
    assert json.loads((stack.var / "demo.json").read_text()) == said
    assert_nothing_is_left(stack, signal.SIGKILL)
