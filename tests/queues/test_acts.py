"""Cancel, hold, release, requeue and change: in every phase, by those who may, against those who were first."""

from typing import Any

import pytest

from controlplane.common.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotVisibleError,
    StaleError,
)
from controlplane.common.models import Event
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Job, Queue
from queues.selectors.jobs import job_of
from queues.services import jobs as acts
from queues.services import planner
from queues.services.attempts import end_attempt
from queues.services.jobs import (
    cancel_job,
    change_job,
    hold_job,
    release_job,
    requeue_job,
)
from tenants.models import PlatformRole, Tenant, TenantRole, User
from tests.factories import (
    A100,
    NOW,
    actor_of,
    later,
    make_cluster,
    make_flavor,
    make_job,
    make_member,
    make_queue,
    make_tenant,
    make_user,
    place_job,
    run_job,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

PHASES = ("pending", "held", "placed", "running", "stopping", "finished")
# Phase after each act, None where it is refused.
AFTER: dict[str, tuple[Any, dict[str, str | None]]] = {
    "cancel": (
        cancel_job,
        {
            "pending": "finished",
            "held": "finished",
            "placed": "stopping",
            "running": "stopping",
            "stopping": "stopping",
            "finished": None,
        },
    ),
    "hold": (
        hold_job,
        {
            "pending": "held",
            "held": "held",
            "placed": None,
            "running": None,
            "stopping": None,
            "finished": None,
        },
    ),
    "release": (
        release_job,
        {
            "pending": "pending",
            "held": "pending",
            "placed": None,
            "running": None,
            "stopping": None,
            "finished": None,
        },
    ),
    "requeue": (
        requeue_job,
        {
            "pending": None,
            "held": None,
            "placed": "stopping",
            "running": "stopping",
            "stopping": "stopping",
            "finished": None,
        },
    ),
}


def job_in(phase: str, queue: Queue, user: User) -> Job:
    """A job that has truly come to this phase."""
    job = make_job(queue, user)
    actor = actor_of(user)
    if phase == "held":
        hold_job(actor, job, "", NOW)
    elif phase == "placed":
        place_job(job)
    elif phase in ("running", "stopping", "finished"):
        attempt = run_job(job)
        if phase == "stopping":
            requeue_job(actor, job, "", NOW)
        if phase == "finished":
            end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=NOW)
    return Job.objects.get(pk=job.pk)


@pytest.mark.parametrize("act", AFTER)
@pytest.mark.parametrize("phase", PHASES)
def test_each_act_in_each_phase(act: str, phase: str, train: Queue, ravi: User) -> None:
    job = job_in(phase, train, ravi)
    do, expected = AFTER[act]
    if expected[phase] is None:
        with pytest.raises(ConflictError) as caught:
            do(actor_of(ravi), job, "why", NOW)
        assert caught.value.hint
        assert Job.objects.get(pk=job.pk).version == job.version
    else:
        assert do(actor_of(ravi), job, "why", NOW).phase == expected[phase]


def test_a_cancelled_job_keeps_the_reason_and_cancelling_again_changes_nothing(
    job: Job, ravi: User
) -> None:
    first = cancel_job(actor_of(ravi), job, "wrong data", NOW)
    assert (first.outcome, first.message) == ("cancelled", "wrong data")
    again = cancel_job(actor_of(ravi), job, "", later(1))
    assert (again.version, again.message) == (first.version, "wrong data")


def test_cancelling_a_running_job_asks_its_attempt_to_stop_with_the_jobs_grace(
    train: Queue, ravi: User
) -> None:
    job = make_job(train, ravi, grace_seconds=77)
    attempt = run_job(job)
    cancel_job(actor_of(ravi), job.pk, "enough", later(5))
    attempt.refresh_from_db()
    assert (attempt.stop_cause, attempt.stop_grace_seconds, attempt.message) == (
        "cancelled",
        77,
        "enough",
    )
    assert attempt.stop_requested_at == later(5)


def test_a_cancel_wins_over_a_requeue_that_is_under_way(train: Queue, ravi: User) -> None:
    job = job_in("stopping", train, ravi)
    cancel_job(actor_of(ravi), job, "", NOW)
    attempt = Attempt.objects.get(job=job)
    assert attempt.stop_cause == "cancelled"


def test_a_held_job_keeps_its_back_off(train: Queue, ravi: User) -> None:
    job = make_job(train, ravi, backoff_until=later(100))
    hold_job(actor_of(ravi), job, "", NOW)
    released = release_job(actor_of(ravi), job, "", later(10))
    assert (released.backoff_until, released.reason_code) == (later(100), "backoff")


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("ravi", None),
        ("olivia", None),
        ("admin", None),
        ("colleague", ForbiddenError),
        ("vera", ForbiddenError),
        ("ines", ForbiddenError),
        ("sam", ForbiddenError),
        ("mei", NotVisibleError),
    ],
)
@pytest.mark.parametrize("act", ["cancel", "hold", "change"])
def test_who_may_act_on_a_job(
    who: str, expected: Any, act: str, job: Job, research: Tenant
) -> None:
    make_member(research, "olivia", TenantRole.ADMIN)
    make_member(research, "colleague", TenantRole.SUBMITTER)
    make_member(research, "vera", TenantRole.VIEWER)
    make_member(make_tenant("vision"), "mei")
    make_user("admin", PlatformRole.ADMIN)
    make_user("ines", PlatformRole.OPERATOR)
    make_user("sam", PlatformRole.AUDITOR)
    actor = actor_of(make_user(who))

    def do() -> None:
        if act == "change":
            change_job(actor, job.pk, {"priority": 100}, None, NOW)
        else:
            getattr(acts, f"{act}_job")(actor, job.pk, "", NOW)

    if expected is None:
        do()
        assert Job.objects.get(pk=job.pk).version == 2
    else:
        with pytest.raises(expected):
            do()
        assert Job.objects.get(pk=job.pk).version == 1


def test_hidden_and_unknown_jobs_are_answered_alike(job: Job) -> None:
    mei = make_member(make_tenant("vision"), "mei")
    answers = []
    for job_id in (job.pk, "job_00000000000000000000000000", "nonsense", "job_\x00"):
        with pytest.raises(NotVisibleError) as caught:
            cancel_job(actor_of(mei), job_id, "", NOW)
        answers.append(caught.value.detail.replace(job_id[:40], "…"))
    assert len(set(answers)) == 1


def test_an_act_looks_again_when_the_scheduler_was_first(
    train: Queue, ravi: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look and our write the job is placed: it is cancelled all the same."""
    job = make_job(train, ravi)
    looks: list[str] = []

    def look(actor: Any, job_id: str) -> Job:
        found = job_of(actor, job_id)
        looks.append(found.phase)
        if len(looks) == 1:
            place_job(Job.objects.get(pk=job_id))
        return found

    monkeypatch.setattr(acts, "job_of", look)
    assert cancel_job(actor_of(ravi), job, "", NOW).phase == "stopping"
    assert looks[:2] == ["pending", "placed"]


# --- change ---


def test_a_change_raises_the_version_and_says_what_was_before(job: Job, ravi: User) -> None:
    Job.objects.filter(pk=job.pk).update(class_key="k", reason_code="waiting_for_nodes")
    changed = change_job(
        actor_of(ravi), job, {"priority": "low", "max_runtime_seconds": 60}, 1, NOW
    )
    assert (changed.priority, changed.max_runtime_seconds, changed.version) == (100, 60, 2)
    assert (changed.class_key, changed.reason_code) == ("", "not_yet_considered")
    event = Event.objects.get(kind="job.changed")
    assert event.numbers == {"priority": [500, 100], "max_runtime_seconds": [None, 60]}


def test_a_change_that_changes_nothing_leaves_the_version(job: Job, ravi: User) -> None:
    assert change_job(actor_of(ravi), job, {"priority": 500}, 1, NOW).version == 1
    assert not Event.objects.filter(kind="job.changed").exists()


def test_a_stale_version_is_refused(job: Job, ravi: User) -> None:
    change_job(actor_of(ravi), job, {"priority": 1}, 1, NOW)
    with pytest.raises(StaleError):
        change_job(actor_of(ravi), job, {"priority": 2}, 1, NOW)


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"priority": 501}, "/priority", "out_of_range"),
        ({"priority": "x"}, "/priority", "invalid_priority"),
        ({"max_runtime_seconds": 0}, "/max_runtime_seconds", "too_small"),
        ({"queue": "nowhere"}, "/queue", "unknown_queue"),
        ({"queue": "shut"}, "/queue", "queue_closed"),
        ({"queue": 7}, "/queue", "not_a_string"),
        ({"queue": "short", "max_runtime_seconds": 9999}, "/max_runtime_seconds", "too_large"),
        ({"name": "other"}, "/name", "unknown_field"),
    ],
)
def test_a_wrong_change_names_its_field_and_changes_nothing(
    shop: Tenant, ravi: User, changes: dict[str, Any], pointer: str, code: str
) -> None:
    job = Job.objects.get(external_id="stored")
    with pytest.raises(InvalidError) as caught:
        change_job(actor_of(ravi), job, changes, 1, NOW)
    assert [(e.pointer, e.code) for e in caught.value.errors] == [(pointer, code)]
    assert Job.objects.get(pk=job.pk).version == 1


def test_a_job_moves_only_to_a_queue_that_takes_it(research: Tenant, ravi: User, job: Job) -> None:
    small = make_flavor(make_cluster(), "a100", A100, gpus_per_node=4)
    make_queue(research, "small", [small])
    make_queue(research, "other")
    with pytest.raises(InvalidError) as caught:
        change_job(actor_of(ravi), job, {"queue": "small"}, 1, NOW)
    assert caught.value.errors[0].pointer == "/queue"
    assert "/gpus_per_replica" in caught.value.errors[0].message
    assert change_job(actor_of(ravi), job, {"queue": "other"}, 1, NOW).queue.name == "other"


def test_a_running_job_stays_in_its_queue(research: Tenant, ravi: User, job: Job) -> None:
    make_queue(research, "other")
    run_job(job)
    with pytest.raises(InvalidError, match="waits"):
        change_job(actor_of(ravi), job, {"queue": "other"}, None, NOW)


class Guarded(planner.NoPlanner):
    """Lets no job run longer than an hour."""

    def refuses_longer_run(self, job: Job, max_runtime_seconds: int | None, now: Any) -> str | None:
        """By the new limit alone."""
        if max_runtime_seconds is None or max_runtime_seconds > 3600:
            return "it would delay job_X"
        return None


def test_running_longer_is_the_planners_to_decide(train: Queue, ravi: User) -> None:
    job = make_job(train, ravi, max_runtime_seconds=600)
    run_job(job)
    before = planner.register(Guarded())
    try:
        for limit, allowed in ((3000, True), (300, True), (4000, False)):
            if allowed:
                changed = change_job(actor_of(ravi), job, {"max_runtime_seconds": limit}, None, NOW)
                assert changed.max_runtime_seconds == limit
            else:
                with pytest.raises(ConflictError, match="delay"):
                    change_job(actor_of(ravi), job, {"max_runtime_seconds": limit}, None, NOW)
    finally:
        planner.register(before)


def test_running_longer_than_its_pods_can_is_refused(train: Queue, ravi: User) -> None:
    job = make_job(train, ravi, max_runtime_seconds=600, grace_seconds=30)
    run_job(job)
    job.attempts.update(pods_end_after_seconds=1230)
    before = planner.register(Guarded())
    try:
        change_job(actor_of(ravi), job, {"max_runtime_seconds": 1200}, None, NOW)
        for limit in (1201, None):
            with pytest.raises(ConflictError, match="after 1200 s"):
                change_job(actor_of(ravi), job, {"max_runtime_seconds": limit}, None, NOW)
    finally:
        planner.register(before)


def test_a_finished_job_cannot_be_changed(train: Queue, ravi: User) -> None:
    job = job_in("finished", train, ravi)
    with pytest.raises(ConflictError):
        change_job(actor_of(ravi), job, {"priority": 1}, None, NOW)
    assert Job.objects.get(pk=job.pk).phase == Phase.FINISHED
