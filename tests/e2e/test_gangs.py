"""A gang over REST on the real processes: whole, close together, or waiting and saying why."""

from typing import Any

import pytest

from tests.e2e.api import ACTIVE, Api
from tests.e2e.stack import Stack, wait_until
from tests.e2e.witness import Witness, gangs_in_part, gpus_given_twice

pytestmark = [pytest.mark.processes, pytest.mark.slow]

REQUIRED_LEAF = {"level": "leaf", "mode": "required"}


def test_eight_nodes_of_one_leaf_run_within_five_seconds_and_end_as_annotated(
    ravi: Api, witness: Witness
) -> None:
    job = ravi.submit(
        name="pretrain-7b",
        replicas=8,
        topology=REQUIRED_LEAF,
        run_seconds=3,
        exit_code=0,
        log_lines=5,
    )
    running = ravi.until(job["id"], "running", 5)
    assert running["phase"] == "running", running
    placement = running["placement"]
    assert len({p["node"] for p in placement}) == 8
    assert len({p["domains"]["leaf"] for p in placement}) == 1
    assert sorted(p["rank"] for p in placement) == list(range(8))

    finished = ravi.until(job["id"], "finished", 20)
    assert (finished["outcome"], finished["exit_code"]) == ("succeeded", 0)
    assert finished["exit_codes"] == [0] * 8
    wait_until(lambda: not _pods_of(witness, job["id"], unfinished=True), 20)
    phases = [e["numbers"]["to"] for e in _events(ravi, job["id"]) if e["kind"] == "job.phase"]
    assert phases == ["placed", "starting", "running", "stopping", "finished"]


def test_logs_and_exit_code_can_be_read_after_the_pods_are_gone(
    ravi: Api, witness: Witness
) -> None:
    job = ravi.submit(name="fails", replicas=2, run_seconds=1, exit_code=7, log_lines=4)
    finished = ravi.until(job["id"], "finished", 30)
    assert (finished["outcome"], finished["exit_code"]) == ("failed", 7)
    # Pods that ended by themselves stay for an hour: take them away as an impatient person would.
    for pod in _pods_of(witness, job["id"], unfinished=False):
        witness.delete_pod(pod)
    wait_until(lambda: not _pods_of(witness, job["id"], unfinished=False), 10)
    log = ravi.call("GET", f"jobs/{job['id']}/logs/", params={"role": "main", "replica": 0})
    assert log.status_code == 200, log.text
    assert "line" in log.text or "step" in log.text, log.text
    assert ravi.job(job["id"])["exit_code"] == 7
    assert _events(ravi, job["id"])


def test_of_two_gangs_for_twelve_nodes_one_runs_and_the_other_holds_nothing(
    demo: Stack, ravi: Api, witness: Witness
) -> None:
    mei = demo.api("mei")
    fillers = [
        (ravi, ravi.submit(name="filler", replicas=26, run_seconds=600)),
        (mei, mei.submit(name="filler", tenant="vision", replicas=26, run_seconds=600)),
    ]
    for api, filler in fillers:
        api.until(filler["id"], "running", 20)
    try:
        first = ravi.submit(name="first", replicas=8, run_seconds=4)
        ravi.until(first["id"], "running", 10)
        second = ravi.submit(name="second", replicas=8, run_seconds=1)
        wait_until(lambda: ravi.job(second["id"])["reason"]["code"] != "not_yet_considered", 5)
        waiting = ravi.job(second["id"])
        assert ravi.job(first["id"])["phase"] == "running"
        assert waiting["phase"] == "pending"
        assert waiting["placement"] == []
        assert not _pods_of(witness, second["id"], unfinished=False)
        assert waiting["reason"]["code"] in {"waiting_for_nodes", "waiting_for_quota"}, waiting
        assert waiting["reason"]["numbers"], waiting
        assert waiting["reason"]["message"], waiting
        started = ravi.until(second["id"], "running", 20)
        assert ravi.job(first["id"])["phase"] not in ACTIVE - {"stopping"}
        assert len(started["placement"]) == 8
        ravi.until(second["id"], "finished", 20)
    finally:
        for api, filler in fillers:
            api.call("POST", f"jobs/{filler['id']}/cancel/", json={"reason": "the test is over"})
    for api, filler in fillers:
        assert api.until(filler["id"], "finished", 60)["outcome"] == "cancelled"
    gangs = {first["id"]: 8, second["id"]: 8, **{f["id"]: 26 for _, f in fillers}}
    sightings = [s for s in witness.sightings if s.job in gangs]
    assert not gpus_given_twice(sightings, witness.gpus_of_nodes())
    assert not gangs_in_part(sightings, gangs, witness.now())


def _events(api: Api, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"jobs/{job_id}/events/", limit=200)["results"]
    return sorted(found, key=lambda event: int(str(event["seq"])))


def _pods_of(witness: Witness, job_id: str, *, unfinished: bool) -> list[dict[str, Any]]:
    pods = [p for p in witness.pods_now() if p["metadata"]["labels"]["muster.dev/job"] == job_id]
    if unfinished:
        pods = [p for p in pods if p["status"]["phase"] not in {"Succeeded", "Failed"}]
    return pods
