"""The log store keeps the last MiB, whole lines, under names that cannot leave its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.kube.errors import Unavailable
from scheduler.kube.pods import PodKey
from scheduler.logstore import KEPT_BYTES, LogKey, LogStore, last_bytes
from scheduler.reconcile.logs import keep, keep_to_the_end
from tests.kube.replay import cut, scripted_server
from tests.kube.test_watching import BUSY

KEY = LogKey("research", "job_1", 2, "main", 3)
POD = PodKey("muster-research", "p", "u")


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path)


def test_log_is_written_and_read_in_parts(store: LogStore) -> None:
    assert store.read(KEY) is None
    assert store.size(KEY) is None
    assert store.write(KEY, b"hello world") == 11
    assert store.exists(KEY)
    assert store.read(KEY, 6, 3) == b"wor"
    assert store.read(KEY, 100) == b""
    assert store.size(KEY) == 11
    assert store.path(KEY).relative_to(store.root) == Path("research/job_1/2/main-3.log")


def test_no_half_written_file_is_left(store: LogStore) -> None:
    store.write(KEY, b"x")
    store.write(KEY, b"y")
    assert [p.name for p in store.path(KEY).parent.iterdir()] == ["main-3.log"]


def test_last_mebibyte_begins_with_a_whole_line(store: LogStore) -> None:
    text = b"".join(b"line %d\n" % n for n in range(200_000))
    kept = last_bytes(text)
    assert len(kept) <= KEPT_BYTES
    assert kept.startswith(b"line ")
    assert text.endswith(kept)
    assert len(last_bytes(b"x" * (KEPT_BYTES + 5))) == KEPT_BYTES


@pytest.mark.parametrize("tenant", ["..", "", "a/b", ".hidden"])
def test_names_cannot_leave_the_folder(store: LogStore, tenant: str) -> None:
    with pytest.raises(ValueError, match="not a log's name"):
        store.path(LogKey(tenant, "job_1", 1, "main", 0))


def test_logs_of_a_job_are_forgotten_together(store: LogStore) -> None:
    store.write(KEY, b"x")
    store.remove_job("research", "job_1")
    store.remove_job("research", "job_1")
    assert store.read(KEY) is None


async def test_log_is_kept_with_last_words_once(store: LogStore) -> None:
    async with scripted_server("readyz", "readyz") as (script, connection):
        assert await keep(connection, store, POD, KEY, last_words="[muster] lost") == 17
        await keep(connection, store, POD, KEY)
    assert store.read(KEY) == b"ok"
    assert script.calls[0].query == {"tailLines": "20000"}


async def test_log_of_a_lost_pod_keeps_what_was_there(store: LogStore) -> None:
    store.write(KEY, b"step 1\n")
    async with scripted_server(BUSY, BUSY) as (_, connection):
        await keep(connection, store, POD, KEY, last_words="[muster] lost on n1")
        await keep(connection, store, POD, KEY, last_words="[muster] lost on n1")
    assert store.read(KEY) == b"step 1\n[muster] lost on n1\n"


async def test_log_is_followed_to_its_end(store: LogStore) -> None:
    async with scripted_server("readyz") as (script, connection):
        assert await keep_to_the_end(connection, store, POD, KEY, 5) == 2
    assert script.calls[0].query == {"tailLines": "20000", "follow": "true"}


async def test_log_that_cannot_be_followed_leaves_what_was_kept(store: LogStore) -> None:
    store.write(KEY, b"before")
    async with scripted_server(cut, cut) as (_, connection):
        with pytest.raises(Unavailable):
            await keep_to_the_end(connection, store, POD, KEY, 5)
    assert store.read(KEY) == b"before"
