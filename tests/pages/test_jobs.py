"""The job list and the job page: order, filters, pages, acts, and how many queries they take."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.common import log
from controlplane.common.models import Event
from queues.models import Job, Placement
from tests.pages.scene import add_jobs

# Session, user, memberships, rail with its alerts; what the page itself needs; the event number that it is as new as.
QUERIES = {
    "/": 28,
    "/jobs/": 14,
    "/jobs/?view=waiting": 11,
    "/map/demo/": 12,
    "/nodes/": 11,
    "/tenants/research/members/": 7,
    "/tenants/research/quotas/": 23,
    "/tenants/research/queues/": 13,
}


def names(answer) -> list[str]:
    return re.findall(r'data-name="([^"]+)"', answer.content.decode())


@pytest.mark.parametrize(("path", "most"), QUERIES.items())
def test_page_takes_no_more_queries_than_it_did(sign_in, django_assert_max_num_queries, path, most):
    client = sign_in("ravi")
    client.get(path)
    with django_assert_max_num_queries(most):
        assert client.get(path).status_code == 200


def test_list_takes_as_many_queries_for_many_jobs_as_for_few(
    sign_in, scene, django_assert_max_num_queries
):
    add_jobs(scene, "ravi", 40)
    client = sign_in("ravi")
    with django_assert_max_num_queries(QUERIES["/jobs/"]):
        answer = client.get("/jobs/")
    assert len(names(answer)) == 50


def test_waiting_tab_stands_in_the_order_of_the_queue(sign_in):
    found = names(sign_in("ravi").get("/jobs/?view=waiting"))
    assert found == [
        "pretrain-70b-ctx32k",
        "ablation-17",
        "sft-math-v4",
        "way-too-big",
        "just-sent",
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("search=NCCL", ["probe-nccl"]),
        ("phase=held", ["ablation-17"]),
        ("phase=failed", ["probe-nccl"]),
        ("reason=waiting_for_quota", ["sft-math-v4"]),
        ("user=olivia", ["eval-suite", "pretrain-70b-ctx32k"]),
        ("queue=debug", []),
        ("search=%00%27%22--", []),
    ],
)
def test_filter_shows_what_fits(sign_in, query, found):
    assert sorted(names(sign_in("ravi").get(f"/jobs/?{query}"))) == sorted(found)


def test_search_finds_a_job_by_the_end_of_its_id(sign_in, scene):
    job = scene.jobs["pretrain-7b"]
    assert names(sign_in("ravi").get(f"/jobs/?search={job.pk[-6:].lower()}")) == ["pretrain-7b"]


def test_pages_walk_through_all_jobs_once(sign_in, scene):
    add_jobs(scene, "ravi", 60)
    client, seen, path = sign_in("ravi"), [], "/jobs/"
    while path:
        answer = client.get(path)
        seen += names(answer)
        link = re.search(r'href="([^"]+)" rel="next"', answer.content.decode())
        path = link[1].replace("&amp;", "&") if link else ""
    assert len(seen) == len(set(seen)) == 70


def test_cursor_of_nonsense_is_refused_not_a_crash(sign_in):
    assert sign_in("ravi").get("/jobs/?cursor=nonsense").status_code == 422


def test_row_says_why_with_numbers_and_when(sign_in, scene):
    text = sign_in("ravi").get("/jobs/?search=pretrain-70b").content.decode()
    assert "leaf-03 has 13 of 16 nodes" in text
    assert "<time datetime=" in text


def test_job_page_names_the_first_failing_replica(sign_in, scene):
    job = scene.jobs["probe-nccl"]
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    assert "main-1 on gpu-00023 failed first" in text
    assert "exit code 1" in text


def test_replica_that_was_stopped_did_not_fail(sign_in, scene):
    job = scene.jobs["probe-nccl"]
    ended_at = Placement.objects.get(attempt__job=job, rank=1).ended_at
    assert ended_at is not None
    # The cause of the others' end is what rank 2 did; rank 1 and 3 were stopped for it.
    for rank in (1, 3):
        mine = Placement.objects.filter(attempt__job=job, rank=rank)
        mine.update(ended_at=ended_at, delete_sent_at=ended_at + timedelta(milliseconds=900))
    later = ended_at + timedelta(hours=1)
    Placement.objects.filter(attempt__job=job, rank=2).update(delete_sent_at=later)
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    assert text.count("failed first") == 2
    assert "main-2 on gpu-00024 failed first" in text
    assert text.count("st-failed") > 0
    log_text = sign_in("ravi").get(f"/jobs/{job.pk}/log/?replica=1").content.decode()
    assert "main-2 failed first" in log_text
    Placement.objects.filter(attempt__job=job, rank=2).update(delete_sent_at=ended_at)
    for path in ("", "log/"):
        text = sign_in("ravi").get(f"/jobs/{job.pk}/{path}").content.decode()
        assert "failed first" not in text


def test_pod_that_was_stopped_and_gone_is_no_failure_of_its_node(sign_in, scene):
    job = scene.jobs["probe-nccl"]
    rows = Placement.objects.filter(attempt__job=job, rank=3)
    rows.update(exit_code=None, end_reason="Stopped")
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    assert "st-cancelled" in text
    assert "st-node_failure" not in text
    rows.update(end_reason="Gone")
    assert "st-node_failure" in sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()


def test_log_opens_at_the_first_failing_replica(sign_in, scene):
    job = scene.jobs["probe-nccl"]
    text = sign_in("ravi").get(f"/jobs/{job.pk}/log/").content.decode()
    assert "failed first, with exit code 1" in text
    assert "Log of main-1" in text


def test_log_is_text_whatever_the_job_wrote(sign_in, scene, settings, tmp_path):
    settings.LOG_STORE = tmp_path
    job = scene.jobs["probe-nccl"]
    folder = tmp_path / "research" / job.pk / "1"
    folder.mkdir(parents=True)
    (folder / "main-1.log").write_bytes(b"<script>alert(1)</script>\xff\x00 done\nlast\n")
    text = sign_in("ravi").get(f"/jobs/{job.pk}/log/").content.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "last" in text


def test_log_lines_come_without_anything_round_them(sign_in, scene):
    """Swapped in every two seconds: a line end more each time would push the log out of sight."""
    job = scene.jobs["probe-nccl"]
    text = sign_in("ravi").get(f"/jobs/{job.pk}/log/?lines=1").content.decode()
    assert text.startswith('<span class="lines"')
    assert text.endswith("</span>")


def test_log_of_a_replica_that_never_started_is_not_waited_for(sign_in, scene):
    job = scene.jobs["probe-nccl"]
    Placement.objects.filter(attempt__job=job).update(started_at=None)
    text = sign_in("ravi").get(f"/jobs/{job.pk}/log/").content.decode()
    assert "The replica never started" in text
    assert 'hx-trigger="load delay:2s"' not in text


def test_timeline_tells_once_why_a_job_was_stopped(sign_in, scene):
    job, at = scene.jobs["probe-nccl"], timezone.now()
    with log.writing():
        for kind, numbers in (
            ("job.phase", {"to": "stopping"}),
            ("attempt.stopping", {"cause": "failed", "grace_seconds": 30}),
            ("attempt.ended", {"attempt": 1, "ended_by": "failed"}),
            ("placement.released", {"pods": 1, "gpus": 8}),
        ):
            told = "" if kind == "placement.released" else "the disk is full"
            log.record(
                log.NewEvent(
                    kind=kind, at=at, tenant="research", job=job.pk, message=told, numbers=numbers
                )
            )
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    assert text.count("the disk is full") == 1
    assert "Attempt 1 ended (failed)" in text
    assert "Pods gone: 1. GPUs free again: 8" in text


def test_cancel_ends_a_waiting_job_and_says_so(sign_in, scene):
    job = scene.jobs["just-sent"]
    answer = sign_in("ravi").post(f"/jobs/{job.pk}/cancel/", follow=True)
    assert "The job is being cancelled." in answer.content.decode()
    job.refresh_from_db()
    assert (job.phase, job.outcome) == ("finished", "cancelled")


def test_hold_and_release_through_the_page(sign_in, scene):
    job, client = scene.jobs["just-sent"], sign_in("ravi")
    client.post(f"/jobs/{job.pk}/hold/")
    assert Job.objects.get(pk=job.pk).phase == "held"
    client.post(f"/jobs/{job.pk}/release/")
    assert Job.objects.get(pk=job.pk).phase == "pending"


def test_unknown_action_is_not_found(sign_in, scene):
    assert sign_in("ravi").post(f"/jobs/{scene.jobs['just-sent'].pk}/explode/").status_code == 404


def test_bulk_does_what_it_may_and_says_what_it_may_not(sign_in, scene):
    mine, hers = scene.jobs["just-sent"], scene.jobs["pretrain-70b-ctx32k"]
    sent = {"action": "hold", "job": [mine.pk, hers.pk], "next": "/jobs/?view=waiting"}
    answer = sign_in("ravi").post("/jobs/bulk/", sent, follow=True)
    text = answer.content.decode()
    assert "Done to 1 job." in text
    assert hers.pk in text
    assert Job.objects.get(pk=mine.pk).phase == "held"
    assert Job.objects.get(pk=hers.pk).phase == "pending"


def test_bulk_goes_back_to_our_own_pages_only(sign_in, scene):
    sent = {"action": "hold", "job": [], "next": "https://evil.example/"}
    assert sign_in("ravi").post("/jobs/bulk/", sent)["Location"] == "/jobs/"


def test_state_that_forbids_an_act_is_told_as_a_page(sign_in, scene):
    answer = sign_in("ravi").post(f"/jobs/{scene.jobs['pretrain-7b'].pk}/hold/")
    assert answer.status_code == 409
    assert "Only a waiting job can be held" in answer.content.decode()


def test_timeline_folds_reasons_that_come_and_go(sign_in, scene):
    job = scene.jobs["pretrain-70b-ctx32k"]
    Event.objects.bulk_create(
        Event(
            kind="job.reason",
            at=scene.now + timedelta(seconds=n),
            tenant="research",
            job=job.pk,
            cluster="demo",
            actor="scheduler",
            numbers={"code": "waiting_for_nodes" if n % 2 else "waiting_for_quota"},
        )
        for n in range(9)
    )
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    shown, _summary, folded = text.partition("9 other reasons since")
    assert shown.count("Waits. Nodes:") + shown.count("Waits. Quota:") == 1
    assert folded.count("Waits. Quota:") == 4


def test_timeline_sums_up_pods_that_go_together_and_says_what_was_changed(sign_in, scene):
    job = scene.jobs["pretrain-7b"]
    common = {"tenant": "research", "job": job.pk, "cluster": "demo", "actor": "ravi"}
    Event.objects.bulk_create(
        [
            Event(
                kind="placement.released",
                at=scene.now + timedelta(seconds=n),
                numbers={"attempt": 1, "pods": 2, "gpus": 16},
                **common,
            )
            for n in range(3)
        ]
        + [
            Event(
                kind="job.changed",
                at=scene.now,
                numbers={"max_runtime_seconds": [None, 7200], "priority": [500, 400]},
                **common,
            )
        ]
    )
    text = sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    assert text.count("Pods gone") == 1
    assert "Pods gone: 6. GPUs free again: 48" in text
    assert "Changed: priority 500 → 400, time limit – → 2 h 00" in text
