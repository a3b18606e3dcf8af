"""Sentences for reasons, quantities, names and ids: pure parts without a database."""

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import reasons
from queues.contract import names
from queues.ids import job8_of, new_job_ids
from queues.quantities import QuantityError, cpu_millis, cpu_text, memory_mib, memory_text
from scheduler.core.reasons import REASON_NUMBERS, ReasonCode
from tests.factories import NOW

NUMBERS = {
    "cluster": "demo",
    "queue": "train",
    "tenant": "research",
    "flavor": "h100",
    "scope": "user",
    "level": "leaf",
    "best_domain": "leaf-03",
    "limiting_resource": "gpus",
    "main_cause": "cordoned",
    "min_cuda": "12.4",
    "window": "w1",
    "refusal": "exceeded quota",
    "first_dependency": "job_A",
    "first_job": "job_A",
    "frees_job": "job_A",
    "booked_job": "job_A",
    "lowest_tenant": "vision",
}


def full(code: ReasonCode) -> dict[str, object]:
    """Numbers for every key that the planner promises."""
    return {
        name: NUMBERS.get(name, NOW.timestamp() if name.endswith(("_at", "_until")) else 600)
        for name in REASON_NUMBERS[code]
    }


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_a_sentence_with_its_numbers(code: ReasonCode) -> None:
    numbers = full(code)
    spoken = reasons.sentence(code.value, numbers)
    assert spoken.endswith(".")
    assert "{" not in spoken
    assert code.value not in spoken
    if numbers:
        assert spoken != reasons.sentence(code.value, {}), "the numbers must be in it"


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_can_be_said_without_numbers(code: ReasonCode) -> None:
    spoken = reasons.sentence(code.value, {})
    assert spoken.endswith(".")
    assert code.value not in spoken


@pytest.mark.parametrize("code", list(ReasonCode))
def test_a_missing_number_never_breaks_a_sentence_or_hint(code: ReasonCode) -> None:
    numbers = full(code)
    for name in numbers:
        assert reasons.sentence(code.value, numbers | {name: None})
        reasons.hint(code.value, numbers | {name: None})
        reasons.answer(code.value, {k: v for k, v in numbers.items() if k != name})


def test_answers_show_times_as_rfc_3339() -> None:
    numbers = {"begin_at": NOW.timestamp(), "needed_gpus": 3, "frees_at": None}
    shown = reasons.answer("begin_time", numbers)["numbers"]
    assert shown == {"begin_at": "2026-11-29T12:00:00Z", "needed_gpus": 3, "frees_at": None}


def test_redaction_hides_exactly_what_may_not_be_seen() -> None:
    numbers = {"booked_job": "job_A", "frees_job": "job_B", "lowest_tenant": "vision", "n": 1}
    assert reasons.redacted(numbers, {"job_B"}, {"research"}) == {
        "booked_job": None,
        "frees_job": "job_B",
        "lowest_tenant": None,
        "n": 1,
    }
    assert reasons.redacted(numbers, {"job_A", "job_B"}, None) == numbers


@pytest.mark.parametrize(
    ("text", "millis"), [("64", 64000), ("500m", 500), ("0.5", 500), ("1e3", 10**6), ("1u", 1)]
)
def test_cpu_is_read_in_thousandths_rounded_up(text: str, millis: int) -> None:
    assert cpu_millis(text) == millis


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512Gi", 524288), ("1Mi", 1), ("1", 1), ("1M", 1), ("1G", 954), ("2Ti", 2097152)],
)
def test_memory_is_read_in_mib_rounded_up(text: str, mib: int) -> None:
    assert memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "many", "-1", "1Gb", "1 Gi", "1e999", "٣", "0x10", "1.2.3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        cpu_millis(text)


@given(st.integers(1, 10**8))
def test_amounts_survive_being_written_and_read(amount: int) -> None:
    assert cpu_millis(cpu_text(amount)) == amount
    assert memory_mib(memory_text(amount)) == amount


@given(st.fractions(0, 10**6).map(lambda value: value.limit_denominator(10**6)))
def test_rounding_never_asks_for_less(value: Fraction) -> None:
    text = f"{float(value):.6f}"
    assert Fraction(cpu_millis(text), 1000) >= Fraction(text)


def test_ids_rise_and_their_short_forms_are_dns_labels() -> None:
    found = list(new_job_ids(NOW, 1000))
    assert found == sorted(found)
    assert len({job8_of(job_id) for job_id in found}) == 1000
    assert all(len(job_id) == 30 and job_id.startswith("job_") for job_id in found)
    assert all(names.dns_label(job8_of(job_id)) is None for job_id in found)


def test_later_ids_sort_after_earlier_ones() -> None:
    (early,), (late,) = (list(new_job_ids(datetime(y, 1, 1, tzinfo=UTC), 1)) for y in (2026, 2027))
    assert early < late


@pytest.mark.parametrize(
    "image",
    [
        "train",
        "train:1",
        "registry.example/team/train:1.4-rc_2",
        "localhost:5000/a/b",
        "nvcr.io/nvidia/pytorch:24.10-py3",
        "a/b@sha256:" + "0" * 64,
        "a.b.c/d__e/f-g:x@sha256:" + "a" * 64,
    ],
)
def test_image_references_that_registries_know_pass(image: str) -> None:
    assert names.image(image) is None


@pytest.mark.parametrize(
    "image", ["", " ", "a b", "a:", "a:b:c", "/a", "a//b", "a@sha256:1", "http://a/b", "a:-x", "ä"]
)
def test_what_is_no_image_reference_is_refused(image: str) -> None:
    assert names.image(image) is not None


@given(st.text(max_size=512))
def test_no_text_takes_long_to_be_judged_or_raises(text: str) -> None:
    for rule in (
        names.image,
        names.env_name,
        names.dns_label,
        names.label_key,
        names.label_value,
        names.mount_path,
        names.object_name,
    ):
        rule(text)


def test_job_whose_flavor_has_no_node_is_told_so() -> None:
    numbers = {"flavor": None, "most_replicas": 0, "needed_replicas": 1, "level": None}
    assert "no node" in reasons.sentence("exceeds_cluster_for_ever", numbers)
    assert "0" not in reasons.hint("exceeds_cluster_for_ever", numbers)


def test_quota_hint_tells_the_tenants_own_use_from_what_others_borrow() -> None:
    numbers = {"used_gpus": 8, "needed_gpus": 8, "nominal_gpus": 32, "available_gpus": 0}
    assert "borrowed" in reasons.hint("waiting_for_quota", numbers)
    assert "jobs of the tenant end" in reasons.hint(
        "waiting_for_quota", numbers | {"used_gpus": 30}
    )
