"""Kubernetes quantities ("223500m", "64Gi", "1e3") as exact integers; used by `parse`.

Rule: apimachinery's resource.Quantity. Where a unit does not divide evenly, what is asked rounds
up and what is offered rounds down, so that rounding never promises what is not there.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

MIB = 1024 * 1024
_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{s: Fraction(1000**i) for i, s in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{s: Fraction(1024**i) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))"
    r"(?:[eE](?P<exponent>[+-]?\d{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)",
    re.ASCII,
)


class QuantityError(ValueError):
    """Text that is no Kubernetes quantity."""


@lru_cache(maxsize=8192)  # a cluster repeats few quantities, ten thousand times
def exact(text: str | int | float) -> Fraction:
    """The value in base units (cores, bytes, devices). Raises `QuantityError`."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise QuantityError(str(text))
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _SUFFIXES[match["suffix"] or ""]


def millis_offered(text: str | int | float) -> int:
    """CPU in thousandths of a core, rounded down."""
    return rounded_down(exact(text) * 1000)


def mib_offered(text: str | int | float) -> int:
    """Memory in MiB, rounded down."""
    return rounded_down(exact(text) / MIB)


def count(text: str | int | float) -> int:
    """Devices or pods, whole; a fraction (which no API server accepts) is rounded up."""
    return rounded_up(exact(text))


def rounded_up(value: Fraction) -> int:
    """The smallest whole number not below `value`: for what is asked."""
    return -((-value.numerator) // value.denominator)


def rounded_down(value: Fraction) -> int:
    """The largest whole number not above `value`: for what is offered."""
    return value.numerator // value.denominator
