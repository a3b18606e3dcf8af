"""Quantities are exact, and rounding never promises what is not there."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.quantities import (
    QuantityError,
    count,
    exact,
    mib_offered,
    millis_offered,
    rounded_down,
    rounded_up,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0", 0),
        ("223500m", Fraction("223.5")),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("64Gi", 64 * 2**30),
        ("2Ti", 2 * 2**40),
        ("2105009892Ki", 2105009892 * 1024),
        ("128974848", 128974848),
        ("129e6", 129 * 10**6),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("129M", 129 * 10**6),
        ("1k", 1000),
        ("100n", Fraction(1, 10**7)),
        ("5u", Fraction(5, 10**6)),
        ("1e-3", Fraction(1, 1000)),
        ("+3", 3),
        (4, 4),
        (0.5, Fraction(1, 2)),
    ],
)
def test_quantity_is_read_exactly(text: str, value: Fraction) -> None:
    assert exact(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1Zi", "1 Gi", "0x10", "1KI", "--1", "1e", "١"])
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        exact(text)


def test_offered_amounts_round_down() -> None:
    assert millis_offered("223.9999") == 223999
    assert mib_offered("1048575") == 0
    assert mib_offered("2000Gi") == 2000 * 1024


def test_devices_are_whole() -> None:
    assert count("8") == 8
    assert count("500m") == 1


@given(st.fractions())
def test_rounding_brackets_the_value(value: Fraction) -> None:
    assert rounded_down(value) <= value <= rounded_up(value)
    assert rounded_up(value) - rounded_down(value) in (0, 1)
