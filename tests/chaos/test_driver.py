"""The driver itself: time that jumps, points at which processes die, and a judge that can say no."""

import asyncio
from dataclasses import replace

import pytest

from queues.models import Attempt, Job
from tests.chaos.crashes import Crash, CrashPoints
from tests.chaos.judge import gangs_in_part, gpus_twice
from tests.chaos.listed import tour
from tests.chaos.plot import health_plot_of, plot_of
from tests.chaos.run import Play, run
from tests.chaos.virtual import NothingLeftError, VirtualLoop
from tests.e2e.witness import Sighting


def seen(
    at: float, name: str, *, node: str = "n0", phase: str = "Running", gone: bool = False
) -> Sighting:
    """A pod of eight GPUs, of attempt 1 of the job in its name's first letter."""
    return Sighting(at, gone, name, name, name[0], "1", node, 8, phase, terminating=False)


def test_hours_pass_in_a_moment_and_in_order() -> None:
    async def wait() -> list[str]:
        done: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            done.append(f"{name} at {asyncio.get_running_loop().time():.0f}")

        await asyncio.gather(
            sleeper("b", 7200), sleeper("a", 3600), asyncio.to_thread(done.append, "0")
        )
        return done

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(wait()) == ["0", "a at 3600", "b at 7200"]


def test_waiting_for_what_never_comes_is_an_error_and_no_hang() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(NothingLeftError):
        runner.run(asyncio.Event().wait())


def test_armed_step_kills_at_its_nth_time_and_once() -> None:
    points = CrashPoints()
    points.arm("cluster.bind.after", 2)
    points.pass_("cluster.bind.after")
    points.pass_("cluster.bind.before")
    with pytest.raises(Crash):
        points.pass_("cluster.bind.after")
    points.pass_("cluster.bind.after")
    assert points.died_at == {"cluster.bind.after": 1}


def test_plots_depend_on_their_seed_alone() -> None:
    assert plot_of(7) == plot_of(7)
    assert plot_of(7) != plot_of(8)
    assert health_plot_of(7) == health_plot_of(7)
    assert {plot.kind for seed in range(60) for plot in plot_of(seed).faults} >= {
        "crash", "api_error", "api_reset", "api_timeout", "api_slow", "watch_drop", "watch_silent",
        "watch_expire", "database_cut", "commit_lost", "database_away", "node_deleted", "node_gone",
        "node_reboot", "node_silent", "pod_deleted", "foreign_pod", "second_cluster_process",
    }  # fmt: skip


def test_judge_sees_two_pods_that_hold_the_same_gpus() -> None:
    assert not gpus_twice([seen(0, "a-0"), seen(1, "a-0", phase="Succeeded"), seen(2, "b-0")])
    assert gpus_twice([seen(0, "a-0"), seen(2, "b-0")])


def test_judge_sees_a_gang_that_stays_in_part_once_all_is_calm() -> None:
    half = [seen(0, "a-0"), seen(0, "a-1", node="")]
    whole = [*half, seen(20, "a-1", node="n1")]
    assert not gangs_in_part(whole, {"a": 2}, calm_from=0, until=500)
    assert gangs_in_part(half, {"a": 2}, calm_from=0, until=31)
    assert not gangs_in_part(half, {"a": 2}, calm_from=480, until=500), "faults are not counted"
    assert not gangs_in_part(half, {"a": 1}, calm_from=0, until=500), "elastic: one is enough"
    lost = [*whole, seen(100, "a-1", node="n1", phase="Failed")]
    assert not gangs_in_part(lost, {"a": 2}, calm_from=0, until=155)
    assert gangs_in_part(lost, {"a": 2}, calm_from=0, until=165), "the rest may wind down, no more"


def spoil(play: Play) -> None:
    """Everything that must not be, at the end of a run in which all went well."""
    labels = {"muster.dev/job": "nobodys", "muster.dev/attempt": "1"}
    container = {
        "name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }  # fmt: skip
    for number in range(2):
        spec = {"nodeName": "gpu-00000", "restartPolicy": "Never", "containers": [container]}
        metadata = {"name": f"orphan-{number}", "labels": labels}
        play.direct.ok(
            "POST", "/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec}
        )
    jobs = Job.objects.order_by("external_id")
    jobs.filter(external_id="chaos-0").update(outcome="failed")
    jobs.filter(external_id="chaos-1").update(phase="running", outcome="", finished_at=None)
    jobs.filter(external_id="chaos-2").update(restarts_used=1)
    jobs.filter(external_id="chaos-3").delete()
    Attempt.objects.get(job__external_id="chaos-4").placements.all()[0].delete()
    play.doctor.note_starts(dict.fromkeys(play.sim.fleet.kubelets, "suspect"), 0)
    account = "system:serviceaccount:muster-system:muster-cluster"
    play.sim.access.refused[f"{account} delete nodes"] += 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_judge_sees_whatever_is_wrong_in_the_end() -> None:
    plot = tour(["watches are dropped"] * 3)
    at_once = tuple(replace(job, at=1.0 + number) for number, job in enumerate(plot.jobs))
    found = "\n".join(run(replace(plot, jobs=at_once, faults=()), meddle=spoil).violations)
    for wrong in (
        "wrong outcome, not succeeded: job-0 finished failed",
        "not finished: job-1 running",
        "job-1 is running with 0 open attempts",
        "1 restarts used for 0 failures: job-2",
        "job 3 was lost",
        "job-4 #1: 2 placed, not 3",
        "orphan pod orphan-0",
        "gpu-00000: 16 GPUs in use when orphan-1 came",
        "job-4 was placed on gpu-0000",
        "which is suspect",
        "forbidden by the shipped role: system:serviceaccount:muster-system:muster-cluster delete",
    ):
        assert wrong in found, f"not seen: {wrong}; but:\n{found}"
