"""The demo's broker: a message is seen whole or not at all, a table that is being written is waited for."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection
from kombu.transport.virtual import BrokerState

from controlplane.celery import app
from controlplane.files_broker import Transport


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made" / "broker"


@pytest.fixture
def channel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # What is declared is remembered for a whole process; every test declares anew.
    monkeypatch.setattr(Transport, "global_state", BrokerState())
    options = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
        "control_folder": str(folder / "control"),
        "processed_folder": str(folder / "processed"),
        "store_processed": False,
    }
    with Connection(transport=Transport, transport_options=options) as connection:
        yield connection.default_channel


def test_message_is_seen_whole_or_not_at_all(channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = []

    def replace(source: Path, target: Path) -> None:
        with pytest.raises(Empty):
            channel._get("scheduler")
        moments.append(channel._size("scheduler"))
        os.rename(source, target)

    monkeypatch.setattr("controlplane.files_broker.os.replace", replace)
    channel._put("scheduler", {"body": "x" * 100_000})
    assert moments == [0]
    assert channel._size("scheduler") == 1
    assert channel._get("scheduler") == {"body": "x" * 100_000}
    assert channel._size("scheduler") == 0


def test_table_that_is_being_written_is_waited_for(channel: Any, folder: Path) -> None:
    table = channel._exchange_file("scheduler")
    table.write_bytes(b"")  # as the original leaves it between opening and writing

    def finish() -> None:
        time.sleep(0.05)
        table.write_text('[["scheduler", "", "scheduler"]]')

    writer = threading.Thread(target=finish)
    writer.start()
    assert [bound.queue for bound in channel.get_table("scheduler")] == ["scheduler"]
    writer.join()


def test_message_comes_through_queues_in_folders_that_make_themselves(
    channel: Any, folder: Path
) -> None:
    queue = channel.connection.client.SimpleQueue("scheduler")
    for number in range(5):
        queue.put({"number": number})
    got = [queue.get(timeout=20) for _ in range(5)]
    for message in got:
        message.ack()
    queue.close()
    assert sorted(message.payload["number"] for message in got) == list(range(5))
    assert not list(folder.glob("*.msg"))


def test_celery_uses_it_under_the_name_of_the_original() -> None:
    with app.connection_for_write("filesystem://") as connection:
        assert type(connection.transport) is Transport
