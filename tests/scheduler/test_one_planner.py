"""The loop, the what-if process and a replay decide by the same function, into the same type."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core import planner, whatif
from scheduler.core.inputs.snapshot import Options
from scheduler.core.outputs import Plan
from scheduler.loop import cycle
from scheduler.replay import engine
from scheduler.replay.engine import Replay, policy_queue
from scheduler.replay.trace import QUEUE, TENANT, read_jobs, read_nodes
from scheduler.snapshot.policy import read_policy
from scheduler.whatif import mirror, trials
from tests.scheduler import rows

COLUMNS = "job_id,submit_s,duration_s,replicas,gpus_per_replica,estimate_s"


@pytest.mark.parametrize("caller", [cycle, engine, mirror, trials, whatif])
def test_every_caller_plans_by_the_one_entry_point(caller: object) -> None:
    assert vars(caller)["plan"] is planner.plan


@pytest.mark.sqlite
@pytest.mark.django_db
def test_default_policy_of_a_replay_is_that_of_a_new_queue() -> None:
    """The product's defaults and no others, apart from the names."""
    world = rows.make_world(1)
    policy = read_policy(world.cluster.pk)
    stored = next(queue for queue in policy.queues if queue.name == "research/train")
    replayed = policy_queue("default")
    assert replace(stored, name=QUEUE, tenant=TENANT, flavors=()) == replayed


def test_replay_of_easy_enacts_plans_of_the_loops_type(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Plan] = []

    def watched(*asked: Any) -> Plan:
        made.append(planner.plan(*asked))
        return made[-1]

    monkeypatch.setattr(engine, "plan", watched)
    nodes, levels = read_nodes(["node,gpus", "n0,8", "n1,8"])
    jobs = read_jobs([COLUMNS, "a,0,50,2,8,60", "b,1,50,1,8,60"], levels)
    replay = Replay(nodes, levels, policy_queue("easy"))
    replay.run(jobs)
    assert [type(each) for each in made] == [Plan] * len(made)
    starts = [(start.job, each.now) for each in made for start in each.starts]
    assert starts == [(run.job.waiting.id, run.started_at) for run in replay.runs]
    assert len(starts) == 2
    assert Options() == cycle.OPTIONS
