"""Logs over REST: kept files by byte cursor, characters never cut, live pods followed, strangers kept out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from django.test import AsyncClient

from queues.models import Attempt, Job, Placement
from queues.selectors.answers import time_text
from scheduler.kube.errors import BadRequest, KubeError
from scheduler.logstore import LogKey, LogStore
from scheduler.models import Node
from scheduler.services.logs import find_source, read_page, web_credentials
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tenants.models import User
from tests.reconcile import world as live
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW, World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(settings, tmp_path: Path) -> World:
    settings.LOG_STORE = tmp_path
    made = rows.make_world(4)
    add_people(made)
    return made


def ended_job(world: World, replicas: int = 1, **placement: object) -> Job:
    job = rows.add_job(world, replicas=replicas)
    Job.objects.filter(pk=job.pk).update(
        phase="finished", outcome="failed", finished_at=NOW, attempt_number=1
    )
    attempt = Attempt.objects.create(
        job=job,
        number=1,
        cluster=world.cluster,
        flavor=world.flavor,
        placed_at=NOW,
        ended_at=NOW,
        ended_by="failed",
    )
    for rank in range(replicas):
        Placement.objects.create(
            **{
                "attempt": attempt,
                "role": job.roles.get(),
                "replica": rank,
                "rank": rank,
                "node": f"gpu-{rank:05d}",
                "gpus": 8,
                "cpu_millis": 1,
                "memory_mib": 1,
                "pod_name": f"pod-{rank}",
                "pod_uid": "uid",
                "started_at": NOW,
                "ended_at": NOW,
                "gone_at": NOW,
                "released_at": NOW,
                "exit_code": 0,
            }
            | placement
        )
    return job


def keep(world: World, job: Job, text: bytes, replica: int = 0) -> None:
    LogStore(Path(settings.LOG_STORE)).write(LogKey("research", job.pk, 1, "main", replica), text)


def get(name: str, job: Job, query: str = ""):
    return client(name).get(f"/api/v1/jobs/{job.pk}/logs/{query}")


def test_kept_log_is_read_by_byte_cursor_to_its_end(world: World) -> None:
    job = ended_job(world)
    keep(world, job, "loss 0.5\n训练完成\n".encode())
    first = get("ravi", job).json()
    assert first["text"] == "loss 0.5\n训练完成\n"
    assert (first["cursor"], first["next"], first["ended"]) == (0, 22, True)
    later = get("ravi", job, "?cursor=9").json()
    assert (later["text"], later["cursor"], later["restarted"]) == ("训练完成\n", 9, False)
    beyond = get("ravi", job, "?cursor=500").json()
    assert (beyond["cursor"], beyond["restarted"]) == (0, True)


def test_pages_join_to_the_whole_log_and_never_cut_a_character(world: World) -> None:
    text = "".join(f"{n} 步骤 🚀 {'x' * (n % 7)}\n" for n in range(400)).encode()
    job = ended_job(world)
    keep(world, job, text)
    for limit_bytes in (64, 1000, 4096):
        source, cursor, parts = find_source(job), 0, []
        while True:
            page = read_page(source, cursor, limit_bytes)
            assert "\ufffd" not in page.text
            parts.append(page.text)
            cursor = page.next
            if page.ended:
                break
        assert "".join(parts).encode() == text


def test_log_of_the_replica_that_failed_first_is_the_default(world: World) -> None:
    job = ended_job(world, replicas=3)
    Placement.objects.filter(rank=2).update(exit_code=7)
    for replica in range(3):
        keep(world, job, f"replica {replica}\n".encode(), replica)
    assert get("ravi", job).json()["replica"] == 2
    assert get("ravi", job, "?replica=1").json()["text"] == "replica 1\n"
    assert get("ravi", job, "?replica=9").status_code == 404
    assert get("ravi", job, "?attempt=2").status_code == 404
    assert get("ravi", job, "?replica=x").status_code == 422
    assert get("mei", job).status_code == 404


def test_log_of_a_pod_that_has_not_started_is_empty_and_not_ended(world: World) -> None:
    job = ended_job(world, pod_uid="", started_at=None, ended_at=None, gone_at=None)
    answer = get("ravi", job).json()
    assert (answer["text"], answer["next"], answer["ended"]) == ("", 0, False)


def test_log_of_a_container_that_could_not_be_started_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with ThreadedSimCluster(uniform_profile(1)) as sim:
        monkeypatch.setenv("KUBECONFIG", sim.kubeconfig)
        web_credentials.cache_clear()
        monkeypatch.setattr("scheduler.services.logs.follow_log", _refused)
        failed = ended_job(world, gone_at=None, exit_code=128)
        assert get("ravi", failed).json()["ended"] is True
        Placement.objects.update(ended_at=None, exit_code=None)
        assert get("ravi", failed).json()["ended"] is False
    web_credentials.cache_clear()


@pytest.mark.parametrize("ready", [True, False])
def test_log_on_a_node_that_does_not_answer_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    with ThreadedSimCluster(uniform_profile(1)) as sim:
        monkeypatch.setenv("KUBECONFIG", sim.kubeconfig)
        web_credentials.cache_clear()
        monkeypatch.setattr("scheduler.services.logs.follow_log", _silent)
        job = ended_job(world, ended_at=None, gone_at=None, exit_code=None)
        Node.objects.filter(name="gpu-00000").update(ready=ready, ready_changed_at=NOW)
        answer = get("ravi", job)
    web_credentials.cache_clear()
    told = answer.json()
    assert answer.status_code == 503
    if ready:
        assert (told["code"], "Kubernetes" in told["detail"]) == ("log_unavailable", True)
    else:
        assert told["code"] == "node_not_ready"
        since = time_text(NOW)
        assert f"node gpu-00000 has not answered since {since}" in told["detail"]


async def _silent(*_pod: object, **_how: object) -> AsyncIterator[bytes]:
    """What the API server says when the kubelet does not answer it."""
    raise KubeError("dial tcp 10.0.0.7:10250: i/o timeout", code=500)
    yield b""


async def _refused(*_pod: object, **_how: object) -> AsyncIterator[bytes]:
    """What the kubelet says of a container that does not run."""
    raise BadRequest('container "main" in pod "pod-0" is not available', code=400)
    yield b""


@pytest.mark.slow
def test_running_pod_is_read_live_and_followed_to_its_end(
    settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadedSimCluster(uniform_profile(4, nodes_per_leaf=2)) as sim:
        world = live.make_world(sim, tmp_path)
        settings.LOG_STORE = tmp_path / "logs"
        monkeypatch.setenv("KUBECONFIG", sim.kubeconfig)
        web_credentials.cache_clear()
        world.start()
        try:
            world.until(lambda: live.nodes_in() == 4)
            job = world.submit(replicas=1, run_seconds=3, log_lines=30)
            world.until_phase(job, "running")
            page = world.until(lambda: (p := get("ravi", job).json())["text"] and p)
            assert not page["ended"]
            followed = asyncio.run(_follow(job, page["next"]))
            world.until_phase(job, "finished")
            whole = world.until(lambda: (p := get("ravi", job).json())["ended"] and p)
            assert page["text"] + followed == whole["text"]
            assert len(whole["text"].splitlines()) >= 30
        finally:
            world.stop()
            web_credentials.cache_clear()


async def _follow(job: Job, cursor: int) -> str:
    reader = AsyncClient()
    await reader.aforce_login(await User.objects.aget(username="ravi"))
    response = await reader.get(f"/api/v1/jobs/{job.pk}/logs/?follow=1&cursor={cursor}")
    assert response.status_code == 200
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    pieces: AsyncIterator[bytes] = response.streaming_content  # type: ignore[attr-defined]
    text = "".join([piece.decode() async for piece in pieces])
    await sync_to_async(connections.close_all)()
    return text
