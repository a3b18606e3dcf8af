"""What is changed of a job on its page, trials that fill the form, the order of all jobs, and reasons in full."""

import json
import re

import pytest

from controlplane.common.looks import REASONS, reason_short
from queues.reasons import sentence
from scheduler.core.reasons import ReasonCode

# Numbers as the planner gives them, by code (scheduler.core.reasons).
NUMBERS: dict[str, dict[str, object]] = {
    "queue_held": {"queue": "train"},
    "queue_closed": {"queue": "train"},
    "cluster_paused": {"cluster": "demo"},
    "cluster_observing": {"cluster": "demo"},
    "cluster_unreachable": {"cluster": "demo"},
    "waiting_for_dependency": {"open_dependencies": 2, "first_dependency": "job_1"},
    "begin_time": {"begin_at": 1.9e9},
    "backoff": {"backoff_until": 1.9e9},
    "refused_by_kubernetes": {"refused_until": 1.9e9, "message": "no"},
    "exceeds_quota_for_ever": {"needed_gpus": 64, "most_gpus": 32},
    "exceeds_cluster_for_ever": {"most_replicas": 3, "needed_replicas": 8},
    "waiting_for_preempted": {"stopping_jobs": 2, "free_at": 1.9e9},
    "higher_priority_ahead": {"jobs_ahead": 3},
    "user_limit": {"used_gpus": 8, "limit_gpus": 8},
    "waiting_for_quota": {"needed_gpus": 64, "available_gpus": 8},
    "waiting_for_fair_share": {"lowest_tenant": "vision"},
    "waiting_for_driver": {"min_cuda": "12.8", "new_enough_nodes": 1, "too_old_nodes": 7},
    "unhealthy_nodes": {"nodes_out": 4},
    "waiting_for_nodes": {"needed_gpus": 64, "free_gpus": 8},
    "waiting_for_topology": {"best_domain": "leaf-3", "free_there": 6, "needed_nodes": 8},
    "waiting_for_reservation": {"reserved_nodes": 4, "ends_at": 1.9e9},
    "waiting_for_maintenance": {"starts_at": 1.9e9, "longest_seconds": 3600},
    "waiting_for_booking": {"longest_seconds": 3600},
    "not_yet_considered": {},
}


@pytest.mark.parametrize("code", [*ReasonCode, "not_yet_considered"])
def test_every_reason_is_said_with_its_numbers(code):
    numbers = NUMBERS[str(code)]
    said = reason_short(str(code), numbers)
    assert "{" not in said
    if numbers:
        assert said != str(REASONS[str(code)].word), "its chip leaves out the numbers"
        assert re.search(r"\d|train|demo|vision", said)
    assert sentence(str(code), numbers)


def test_reason_stands_on_the_page_of_the_job_with_its_numbers(scene, sign_in):
    text = sign_in("ravi").get(f"/jobs/{scene.jobs['sft-math-v4'].pk}/").content.decode()
    assert "needs 64, 48 left" in text


def test_priority_and_limit_are_changed_with_the_version_seen(scene, sign_in):
    job, client = scene.jobs["sft-math-v4"], sign_in("ravi")
    path, sent = (
        f"/jobs/{job.pk}/change/",
        {"priority": "300", "limit": "2h", "version": job.version},
    )
    assert client.post(path, sent)["Location"] == f"/jobs/{job.pk}/"
    job.refresh_from_db()
    assert (job.priority, job.max_runtime_seconds) == (300, 7200)
    text = client.post(path, sent | {"priority": "200"}, follow=True).content.decode()
    assert "changed" in text
    job.refresh_from_db()
    assert job.priority == 300
    wrong = sent | {"limit": "soon", "version": job.version}
    assert "Write a time such as" in client.post(path, wrong, follow=True).content.decode()


def test_job_of_somebody_else_is_not_changed(scene, sign_in):
    job = scene.jobs["pretrain-70b-ctx32k"]
    path, sent = f"/jobs/{job.pk}/change/", {"limit": "2h", "version": job.version}
    sign_in("vera").post(path, sent)
    assert sign_in("mei").post(path, sent).status_code == 404
    job.refresh_from_db()
    assert job.max_runtime_seconds == 86_400


def test_running_job_is_requeued(scene, sign_in):
    job = scene.jobs["pretrain-7b"]
    assert "Requeue" in sign_in("olivia").get(f"/jobs/{job.pk}/").content.decode()
    sign_in("olivia").post(f"/jobs/{job.pk}/requeue/")
    job.refresh_from_db()
    assert (job.phase, job.attempts.get().stop_cause) == ("stopping", "requeued")


def test_trial_fills_the_form_and_nonsense_is_left_out(scene, sign_in):
    job, client = scene.jobs["sft-math-v4"], sign_in("ravi")
    change = json.dumps({"max_runtime_seconds": 3600, "topology": {"level": "spine"}, "image": "x"})
    form = client.get("/jobs/new/", {"from": job.pk, "change": change}).context["form"]
    assert form.initial["limit"] == "1h"
    assert form.initial["topology_level"] == "spine"
    assert form.initial["image"] == "registry.example/train:1"
    for odd in ("[", "[]", '{"replicas": "many"}', '{"topology": 3}'):
        assert client.get("/jobs/new/", {"from": job.pk, "change": odd}).status_code == 200


def test_all_jobs_are_those_that_wait_then_run_then_have_ended(scene, sign_in):
    text = sign_in("ravi").get("/jobs/").content.decode()
    states = re.findall(r'<tr id="job-[^>]*data-state="(\w+)"', text)
    rank = {"pending": 0, "held": 0, "finished": 2}
    order = [rank.get(state, 1) for state in states]
    assert order == sorted(order)
    assert set(order) == {0, 1, 2}
