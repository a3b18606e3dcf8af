"""Kubernetes quantities as jobs write them ("64", "500m", "512Gi", "1e3") to whole units and back. Pure.

Rule: apimachinery's resource.Quantity. What is asked rounds up, so that rounding never asks for less.
Called by `contract` when a job is read and by `selectors.answers` when it is shown.
"""

import re
from fractions import Fraction

BYTES_PER_MIB = 1024 * 1024
_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{s: Fraction(1000**i) for i, s in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{s: Fraction(1024**i) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>\+?(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2})|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)


class QuantityError(ValueError):
    """Text that is no quantity, or a negative one."""


def cpu_millis(text: str) -> int:
    """CPU in thousandths of a core, rounded up. Raises QuantityError."""
    return _rounded_up(_exact(text) * 1000)


def memory_mib(text: str) -> int:
    """Memory in MiB, rounded up. Raises QuantityError."""
    return _rounded_up(_exact(text) / BYTES_PER_MIB)


def cpu_text(millis: int) -> str:
    """Thousandths of a core as a quantity: whole cores where they are ("64"), else "1500m"."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def memory_text(mib: int) -> str:
    """MiB as a quantity in the largest unit that leaves it whole: "2Ti", "512Gi", "1536Mi"."""
    for factor, unit in ((1024 * 1024, "Ti"), (1024, "Gi")):
        if mib and mib % factor == 0:
            return f"{mib // factor}{unit}"
    return f"{mib}Mi"


def _exact(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _SUFFIXES[match["suffix"] or ""]


def _rounded_up(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)
