"""Rate limits: a bucket per caller and kind; ten thousand jobs in batches pass within a minute."""

import pytest
from django.conf import settings

from tenants.throttling import CALLERS_KEPT, Buckets

READ = "/api/v1/tenants/"


@pytest.fixture
def limits(settings):
    settings.RATE_LIMITS = {"read": (60, 3), "submit": (60, 2), "simulate": (60, 1)}


def test_bucket_allows_a_burst_and_then_its_rate(limits):
    buckets = Buckets()
    assert [buckets.take("a", "read", 0.0) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a", "read", 0.0) == pytest.approx(1.0)
    assert buckets.take("a", "read", 0.5) == pytest.approx(0.5)
    assert buckets.take("a", "read", 1.0) == 0
    assert buckets.take("a", "read", 100.0) == 0


def test_kinds_and_callers_do_not_share(limits):
    buckets = Buckets()
    for _ in range(4):
        buckets.take("a", "read", 0.0)
    assert buckets.take("a", "submit", 0.0) == 0
    assert buckets.take("b", "read", 0.0) == 0


def test_memory_is_bounded():
    buckets = Buckets()
    for number in range(CALLERS_KEPT + 500):
        buckets.take(f"caller-{number}", "read", 0.0)
    assert len(buckets._buckets) == CALLERS_KEPT


def test_caller_over_the_limit_is_told_when_to_come_back(world, limits):
    client = world.bearer("ravi")
    answers = [client.get(READ) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    refused = answers[-1]
    assert refused.json()["code"] == "rate_limited"
    assert int(refused["Retry-After"]) >= 1
    assert world.bearer("mei").get(READ).status_code == 200


def test_ten_thousand_jobs_in_batches_and_two_thousand_single_calls_pass_within_a_minute():
    buckets = Buckets()
    per_batch = 500
    waits = [buckets.take("ci", "submit", second * 3.0) for second in range(10_000 // per_batch)]
    waits += [buckets.take("ci", "submit", 60 + n / 40) for n in range(2000)]
    assert not any(waits)
    assert set(settings.RATE_LIMITS) == {"read", "submit", "simulate", "attempt"}
