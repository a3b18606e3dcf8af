"""Identities of jobs: "job_" and a ULID, and `job8`, the root of pod and service names. Pure but for chance.

Called by `services.submission`. Ids made together rise in order, so that age ties are broken as submitted.
"""

from collections.abc import Iterator
from datetime import datetime

from ulid import ULID

JOB_PREFIX = "job_"


def new_job_ids(now: datetime, count: int) -> Iterator[str]:
    """`count` ids that rise; the first is drawn at random within `now`'s millisecond."""
    first = int(ULID.from_datetime(now))
    for offset in range(count):
        yield f"{JOB_PREFIX}{ULID.from_int(first + offset)}"


def job8_of(job_id: str) -> str:
    """ "j" and the last 8 characters of the id in lower case: a DNS label that begins with a letter."""
    return f"j{job_id[-8:].lower()}"
