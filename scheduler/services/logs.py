"""Logs of replicas for people: kept files for ended pods, Kubernetes for running ones. Called by API and pages.

A cursor is a byte offset. It counts in what the kubelet serves while the pod runs, and in the kept file
afterwards; these are the same for logs up to what is kept (1 MiB). A cursor beyond the end starts anew.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.utils.translation import gettext as _

from controlplane.common.errors import NotVisibleError, UnavailableError
from queues.models import Attempt, Job, Placement
from queues.selectors.answers import time_text
from queues.selectors.placements import first_failed
from scheduler.kube.connection import Connection
from scheduler.kube.credentials import Credentials, CredentialsError, load_credentials
from scheduler.kube.errors import BadRequest, KubeError, NotFound
from scheduler.kube.pods import follow_log
from scheduler.logstore import LogKey, LogStore
from scheduler.models import Node

PAGE_BYTES = 256 * 1024
# Reading past the cursor of a live log costs its whole length: not beyond this.
MOST_LIVE_BYTES = 64 * 1024 * 1024
WAIT_FOR_START_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LogSource:
    """Which replica's log, and where it is: a pod while there is one, the kept file otherwise.

    ended: the container has ended, so that the log grows no more.
    """

    key: LogKey
    placement_id: int
    namespace: str
    pod: str
    pod_exists: bool
    started: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class LogPage:
    """A part of a log. text begins at byte `cursor`; go on from `next`.

    ended: nothing will follow `next`. restarted: the cursor asked for was beyond the end, so text begins at 0.
    """

    text: str
    cursor: int
    next: int
    ended: bool
    restarted: bool = False


def find_source(
    job: Job, *, role: str = "", replica: int | None = None, attempt: int | None = None
) -> LogSource:
    """The log that is meant: of the last attempt, of the replica that failed first, else of the first one.

    `job` is one that the reader may see. Raises NotVisibleError where there is no such attempt or replica.
    """
    attempts = Attempt.objects.filter(job=job)
    if attempt is not None:
        attempts = attempts.filter(number=attempt)
    found = attempts.order_by("-number").first()
    if found is None:
        raise NotVisibleError(_("The job has no such attempt."), code="no_attempt")
    rows = Placement.objects.filter(attempt=found).select_related("role").order_by("rank")
    if role:
        rows = rows.filter(role__name=role)
    if replica is not None:
        rows = rows.filter(replica=replica)
    placements = list(rows)
    if not placements:
        raise NotVisibleError(_("The attempt has no such replica."), code="no_replica")
    return source_of(job, found.number, first_failed(placements) or placements[0])


def source_of(job: Job, attempt_number: int, placement: Placement) -> LogSource:
    """Where a replica's log is. Needs `job.tenant`, `placement.role`."""
    key = LogKey(job.tenant.slug, job.pk, attempt_number, placement.role.name, placement.replica)
    return LogSource(
        key=key,
        placement_id=placement.pk,
        namespace=job.tenant.namespace,
        pod=placement.pod_name,
        pod_exists=bool(placement.pod_uid) and placement.gone_at is None,
        started=placement.started_at is not None,
        ended=placement.ended_at is not None or placement.gone_at is not None,
    )


def read_page(source: LogSource, cursor: int = 0, limit_bytes: int = PAGE_BYTES) -> LogPage:
    """A part of the log from a synchronous view. Raises UnavailableError when Kubernetes does not answer."""
    return async_to_sync(read_page_async)(source, cursor, limit_bytes)


async def read_page_async(
    source: LogSource, cursor: int = 0, limit_bytes: int = PAGE_BYTES
) -> LogPage:
    """As `read_page`; nothing in it blocks the event loop."""
    kept = await _kept(source, cursor, limit_bytes) if source.ended else None
    if kept is not None:
        return kept
    if not source.pod_exists:
        return LogPage("", 0, 0, ended=source.ended)
    return await _live(source, cursor, limit_bytes)


async def _kept(source: LogSource, cursor: int, limit_bytes: int) -> LogPage | None:
    store = log_store()
    size = await asyncio.to_thread(store.size, source.key)
    if size is None:
        return None
    begin = cursor if cursor <= size else 0
    text = await asyncio.to_thread(store.read, source.key, begin, limit_bytes) or b""
    page = _page(text, begin, limit_bytes, ended=begin + len(text) >= size)
    return replace(page, restarted=begin != cursor)


async def _live(source: LogSource, cursor: int, limit_bytes: int) -> LogPage:
    """What the kubelet has now, past the cursor: its API counts lines, so the bytes before it are skipped here."""
    seen, found = 0, bytearray()
    try:
        async with Connection(web_credentials()) as connection:
            async for piece in follow_log(connection, source.namespace, source.pod, follow=False):
                found += piece[max(0, cursor - seen) :]
                seen += len(piece)
                if len(found) >= limit_bytes or seen > MOST_LIVE_BYTES:
                    break
    except NotFound:
        return LogPage("", cursor, cursor, ended=False)  # gone in this moment: the kept file comes
    except BadRequest:
        # The container has not started; one that has ended so never will.
        return LogPage("", cursor, cursor, ended=source.ended)
    except (KubeError, CredentialsError) as error:
        raise await sync_to_async(_unreachable)(source) from error
    if seen < cursor:
        # The kubelet has rotated the log, and serves the newer part alone.
        again = await _live(source, 0, limit_bytes)
        return replace(again, restarted=True)
    return _page(bytes(found[:limit_bytes]), cursor, limit_bytes, ended=False)


def _page(text: bytes, cursor: int, limit_bytes: int, *, ended: bool) -> LogPage:
    """Cut a full page at its last line, any page before a character that is not there whole."""
    whole = text
    if len(text) >= limit_bytes:
        newline = text.rfind(b"\n")
        whole = text[: newline + 1] if newline >= 0 else text
    if not ended or len(whole) < len(text):
        whole = whole[: _whole_characters(whole)]
    return LogPage(
        text=whole.decode("utf-8", "replace"),
        cursor=cursor,
        next=cursor + len(whole),
        ended=ended and len(whole) == len(text),
    )


def _whole_characters(text: bytes) -> int:
    """Length without the beginning of a UTF-8 character whose end is missing."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(text) - back if width > back else len(text)
    return len(text)


async def follow(source: LogSource, cursor: int = 0) -> AsyncIterator[bytes]:
    """The log from `cursor` on, as it grows, until the container has ended."""
    while not source.started and not source.ended:
        await asyncio.sleep(WAIT_FOR_START_SECONDS)
        source = await sync_to_async(_again)(source)
    live = not source.ended and source.pod_exists
    async for piece in _follow_live(source, cursor) if live else _rest(source, cursor):
        yield piece


async def _follow_live(source: LogSource, cursor: int) -> AsyncIterator[bytes]:
    seen = 0
    try:
        async with Connection(web_credentials()) as connection:
            async for piece in follow_log(connection, source.namespace, source.pod):
                fresh = piece[max(0, cursor - seen) :]
                seen += len(piece)
                if fresh:
                    yield fresh
    except (KubeError, CredentialsError):
        # The line dropped or the pod went: what is kept by now says the rest.
        ended = await sync_to_async(_again)(source)
        async for piece in _rest(ended, max(cursor, seen)):
            yield piece


async def _rest(source: LogSource, cursor: int) -> AsyncIterator[bytes]:
    while True:
        page = await read_page_async(source, cursor)
        if page.text:
            yield page.text.encode()
        if page.ended or page.next == cursor:
            return
        cursor = page.next


def _again(source: LogSource) -> LogSource:
    row = Placement.objects.filter(pk=source.placement_id).first()
    if row is None:
        return replace(source, ended=True, pod_exists=False)
    return replace(
        source,
        pod=row.pod_name,
        pod_exists=bool(row.pod_uid) and row.gone_at is None,
        started=row.started_at is not None,
        ended=row.ended_at is not None or row.gone_at is not None,
    )


def log_store() -> LogStore:
    """Where logs of ended pods are kept."""
    return LogStore(Path(settings.LOG_STORE))


@lru_cache(maxsize=1)
def web_credentials() -> Credentials:
    """How the web process reaches Kubernetes, for logs alone: $KUBECONFIG, or the pod's service account."""
    named = os.environ.get("KUBECONFIG")
    return load_credentials(Path(named) if named else None)


def _unreachable(source: LogSource) -> UnavailableError:
    """Who does not answer: the node, where that is known not to be ready, else Kubernetes."""
    placement = Placement.objects.filter(pk=source.placement_id).select_related("attempt").first()
    if placement is not None:
        node = Node.objects.filter(
            cluster=placement.attempt.cluster_id, name=placement.node, ready=False
        ).first()
        if node is not None:
            return _node_silent(node)
    return UnavailableError(
        _("The log cannot be read now: Kubernetes does not answer."), code="log_unavailable"
    )


def _node_silent(node: Node) -> UnavailableError:
    since = time_text(node.ready_changed_at)
    told = (
        _("The log cannot be read now: node {node} has not answered since {since}.")
        if since
        else _("The log cannot be read now: node {node} does not answer.")
    )
    return UnavailableError(told.format(node=node.name, since=since), code="node_not_ready")
