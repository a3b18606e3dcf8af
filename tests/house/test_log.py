"""The event log: numbers rise with commits, and nothing is written outside a transaction."""

from datetime import UTC, datetime

import pytest

from controlplane.common import log
from controlplane.common.models import Event

NOW = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.sqlite
@pytest.mark.django_db
def test_events_are_appended_last_and_in_order() -> None:
    with log.writing():
        log.record(log.NewEvent(kind="job.phase", at=NOW, job="job_a"))
        log.record(log.NewEvent(kind="job.phase", at=NOW, job="job_b"))
        assert not Event.objects.exists()
    assert list(Event.objects.order_by("seq").values_list("job", flat=True)) == ["job_a", "job_b"]
    assert log.latest_seq() == Event.objects.get(job="job_b").seq


@pytest.mark.sqlite
@pytest.mark.django_db
def test_an_inner_block_that_fails_takes_its_events_with_it() -> None:
    with log.writing():
        log.record(log.NewEvent(kind="kept", at=NOW))
        with pytest.raises(ValueError, match="refused"):
            record_and_fail()
    assert list(Event.objects.values_list("kind", flat=True)) == ["kept"]


def record_and_fail() -> None:
    """A service that changes its mind after it has recorded an event."""
    with log.writing():
        log.record(log.NewEvent(kind="lost", at=NOW))
        raise ValueError("refused")


def test_recording_outside_a_block_is_an_error() -> None:
    with pytest.raises(log.NotWritingError):
        log.record(log.NewEvent(kind="job.phase", at=NOW))
