"""One planner a cluster: leases, fencing tokens, and a leader that comes back from a pause."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import close_old_connections, connection, transaction

from queues.models import Cluster
from scheduler.apply.fence import HeldLease, LeaseLostError, hold
from scheduler.loop.lease import acquire, give_back, renew
from scheduler.models import Lease

NOW = datetime(2026, 1, 5, tzinfo=UTC)
pytestmark = pytest.mark.sqlite


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="demo", mode="schedule", created_at=NOW)


def _acquired(cluster: Cluster, holder: str, seconds: float = 10) -> HeldLease:
    lease = acquire(cluster.pk, holder, seconds=seconds)
    assert lease is not None
    return lease


@pytest.mark.django_db
def test_second_holder_waits_until_the_first_gives_it_back(cluster: Cluster) -> None:
    first = _acquired(cluster, "first")
    assert acquire(cluster.pk, "second") is None
    give_back(first)
    second = _acquired(cluster, "second")
    assert second.token > first.token


@pytest.mark.django_db
def test_renewed_lease_stays_with_its_holder(cluster: Cluster) -> None:
    first = _acquired(cluster, "first", seconds=-1)
    assert renew(first)
    assert acquire(cluster.pk, "second") is None


@pytest.mark.django_db
def test_expired_lease_goes_to_whoever_asks(cluster: Cluster) -> None:
    first = _acquired(cluster, "first", seconds=-1)
    second = _acquired(cluster, "second")
    assert not renew(first)
    give_back(first)
    assert Lease.objects.get().holder == "second"
    with transaction.atomic():
        hold(second)


@pytest.mark.django_db
def test_same_name_does_not_share_a_lease(cluster: Cluster) -> None:
    first = _acquired(cluster, "worker", seconds=-1)
    second = _acquired(cluster, "worker")
    assert first.token != second.token
    with pytest.raises(LeaseLostError), transaction.atomic():
        hold(first)


@pytest.mark.django_db
def test_paused_leader_that_comes_back_is_refused(cluster: Cluster) -> None:
    paused = _acquired(cluster, "paused", seconds=-1)
    with transaction.atomic():
        hold(paused)  # ran out, but nobody took it: still the only planner
    _acquired(cluster, "successor")
    with pytest.raises(LeaseLostError), transaction.atomic():
        hold(paused)


@pytest.mark.django_db(transaction=True)
def test_nobody_takes_over_in_the_middle_of_a_transaction(cluster: Cluster) -> None:
    leader = _acquired(cluster, "leader", seconds=-1)
    order: list[str] = []

    def take_over() -> None:
        try:
            assert acquire(cluster.pk, "successor") is not None
            order.append("taken over")
        finally:
            connection.close()

    successor = threading.Thread(target=take_over)
    with transaction.atomic():
        hold(leader)
        successor.start()
        successor.join(timeout=0.3)
        order.append("committing")
    successor.join(timeout=20)
    assert order == ["committing", "taken over"]
    with pytest.raises(LeaseLostError), transaction.atomic():
        hold(leader)


@pytest.mark.django_db(transaction=True)
def test_of_many_who_ask_at_once_one_gets_it(cluster: Cluster) -> None:
    got: list[HeldLease | None] = []
    start = threading.Barrier(6)

    def ask(name: str) -> None:
        close_old_connections()
        start.wait()
        try:
            got.append(acquire(cluster.pk, name))
        finally:
            connection.close()

    askers = [threading.Thread(target=ask, args=(f"worker-{i}",)) for i in range(6)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(timeout=30)
    winners = [lease for lease in got if lease is not None]
    assert len(got) == 6
    assert len(winners) == 1
    assert Lease.objects.get().holder == winners[0].holder
