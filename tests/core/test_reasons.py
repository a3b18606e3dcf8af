"""Every reason code has a case that produces it, with all its numbers."""

from dataclasses import replace

import pytest

from scheduler.core.reasons import REASON_NUMBERS, ReasonCode
from tests.core.builders import gang, planned, snapshot, tenant
from tests.core.reason_cases import ALL, CASES, HALF, nodes_out, reason_for


@pytest.mark.parametrize("code", list(ReasonCode))
def test_reason_is_produced_with_its_numbers(code):
    reason = reason_for(code)
    assert reason.code == code
    assert set(REASON_NUMBERS[code]) <= set(reason.numbers)


def test_every_code_has_a_case():
    assert set(CASES) == set(ReasonCode) == set(REASON_NUMBERS)


def test_all_other_reasons_follow_the_dominant_one():
    held = replace(HALF, ask=replace(HALF.ask, tenant="t"))
    given = snapshot(
        nodes_out(ALL[7]), gang("j", 4), running=(held,), tenants=(tenant(nominal=40),)
    )
    reasons = [str(r.code) for r in next(iter(planned(given).verdicts.values())).reasons]
    assert reasons == ["waiting_for_quota", "waiting_for_nodes", "unhealthy_nodes"]
