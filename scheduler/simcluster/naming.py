"""Identities drawn from the cluster's seed: uids and name endings; and the rules for names."""

import random
import re
import zlib
from functools import lru_cache

_ENDING = "bcdfghjklmnpqrstvwxz2456789"
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICE_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
QUALIFIED_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SERVICE_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
    "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class Identities:
    """Draws uids and name endings in the order of the calls."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._draw = random.Random(f"identities-{seed}")

    def uid(self) -> str:
        """A version 4 UUID."""
        text = f"{self._draw.getrandbits(128):032x}"
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def ending(self) -> str:
        """Five letters for `generateName`."""
        return "".join(self._draw.choice(_ENDING) for _ in range(5))

    def stable(self, *parts: str) -> random.Random:
        """A generator that depends on the seed and a name only, not on the order of calls."""
        return random.Random(zlib.crc32("/".join((str(self.seed), *parts)).encode()))


def name_problem(name: str, kind: str) -> str | None:
    """What is wrong with a name of a kind, in the API server's words, or None."""
    if kind == "Namespace":
        limit, shape, message = 63, LABEL, LABEL_MESSAGE
    elif kind == "Service":
        limit, shape, message = 63, SERVICE_LABEL, SERVICE_MESSAGE
    elif kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
        return "may not contain '/'" if "/" in name or name in (".", "..") else None
    else:
        limit, shape, message = 253, SUBDOMAIN, SUBDOMAIN_MESSAGE
    if len(name) > limit:
        return f"must be no more than {limit} bytes"
    return None if shape.fullmatch(name) else message


@lru_cache(maxsize=16_384)
def label_value_problem(value: str) -> str | None:
    """What is wrong with the value of a label, or None."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return None if value == "" or QUALIFIED_PART.fullmatch(value) else LABEL_VALUE_MESSAGE


@lru_cache(maxsize=16_384)
def qualified_name_problem(key: str) -> str | None:
    """What is wrong with a label or annotation key, or None."""
    prefix, slash, name = key.rpartition("/")
    if slash and not SUBDOMAIN.fullmatch(prefix):
        return "prefix part " + SUBDOMAIN_MESSAGE
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if not QUALIFIED_PART.fullmatch(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return None
