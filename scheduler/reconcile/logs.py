"""Fills the log store from Kubernetes: before a pod is asked to end, while it ends, after its end.

Called by `enact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from scheduler.kube.connection import Connection
from scheduler.kube.errors import KubeError
from scheduler.kube.pods import LogRange, PodKey, follow_log
from scheduler.logstore import KEPT_BYTES, LogKey, LogStore

# A log of long lines may be far larger than what is kept: reading stops there.
READ_LINES = 20_000
READ_BYTES = 64 * 1024 * 1024


async def read_last(connection: Connection, pod: PodKey, *, to_the_end: bool = False) -> bytes:
    """The last MiB of a pod's log as it is now, or, `to_the_end`, once its container has ended.

    The server can cut a log's head by lines only, so a bounded tail is read and cut here.
    """
    wanted = LogRange(tail_lines=READ_LINES)
    kept, seen = bytearray(), 0
    async for piece in _pieces(connection, pod, wanted, to_the_end=to_the_end):
        seen += len(piece)
        kept += piece
        if len(kept) > 2 * KEPT_BYTES:
            del kept[:-KEPT_BYTES]
        if seen > READ_BYTES:
            break
    return bytes(kept)


async def _pieces(
    connection: Connection, pod: PodKey, wanted: LogRange, *, to_the_end: bool
) -> AsyncIterator[bytes]:
    async for piece in follow_log(connection, pod.namespace, pod.name, wanted, follow=to_the_end):
        yield piece


async def keep(
    connection: Connection, store: LogStore, pod: PodKey, key: LogKey, *, last_words: str = ""
) -> int:
    """Store a pod's log as it is now, with `last_words` of ours behind it; the bytes kept.

    Raises `KubeError` when the log cannot be had and there is nothing else to say.
    """
    text: bytes
    try:
        text = await read_last(connection, pod)
    except KubeError:
        if not last_words:
            raise
        # What was kept before the node was lost is all there is.
        before = await asyncio.to_thread(store.read, key, 0, KEPT_BYTES)
        text = before or b""
    if last_words and last_words.encode() not in text:
        text = text.rstrip(b"\n") + (b"\n" if text else b"") + last_words.encode() + b"\n"
    return await asyncio.to_thread(store.write, key, text)


async def keep_to_the_end(
    connection: Connection, store: LogStore, pod: PodKey, key: LogKey, seconds: float
) -> int:
    """Follow the log of a pod that is ending until it has ended, for `seconds` at most."""
    async with asyncio.timeout(seconds):
        text = await read_last(connection, pod, to_the_end=True)
    return await asyncio.to_thread(store.write, key, text)
