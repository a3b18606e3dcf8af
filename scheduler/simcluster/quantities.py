"""Kubernetes quantities as whole milli-units, for quota, limits and kubelet admission."""

import re
from decimal import Decimal
from functools import lru_cache

_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"),
    "P": Decimal("1e15"), "E": Decimal("1e18"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_SHAPE = re.compile(
    r"^([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))$"
)
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL = ("E", "P", "T", "G", "M", "k")


@lru_cache(maxsize=8192)
def milli(text: str) -> int:
    """A quantity in thousandths of its unit, rounded up. Raises ValueError."""
    match = _SHAPE.match(text)
    if match is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, exponent, suffix = match.groups()
    scale = Decimal("1" + exponent) if exponent else _SUFFIX[suffix]
    value = Decimal(number) * scale * 1000
    whole = int(value)
    return whole + 1 if value > whole else whole


def is_whole(text: str) -> bool:
    """Whether a quantity is a whole number of its unit. Raises ValueError."""
    return milli(text) % 1000 == 0


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """A quantity as the API server writes it back: `0.5` is `500m`, `1000m` is `1`."""
    value = milli(text)
    if any(text.endswith(suffix) for suffix in _BINARY) and value % 1000 == 0:
        return _scaled(value // 1000, _BINARY, 1024)
    if value % 1000:
        return f"{value}m"
    return _scaled(value // 1000, _DECIMAL, 1000)


def plain(milli_value: int, like: str = "") -> str:
    """Milli-units as text in the binary or decimal style of `like`."""
    if milli_value % 1000:
        return f"{milli_value}m"
    binary = any(like.endswith(suffix) for suffix in _BINARY)
    units, base = (_BINARY, 1024) if binary else (_DECIMAL, 1000)
    return _scaled(milli_value // 1000, units, base)


def _scaled(value: int, units: tuple[str, ...], base: int) -> str:
    for power, unit in zip(range(len(units), 0, -1), units, strict=True):
        if value and value % base**power == 0:
            return f"{value // base**power}{unit}"
    return str(value)
