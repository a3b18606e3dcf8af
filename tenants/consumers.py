"""The websocket /ws/live/ (docs/live.md): lets pages in, takes their subscriptions, and shows them out again."""

import asyncio
import json
import logging
from typing import Any

from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.utils import timezone

from controlplane.common.live import Socket, hub
from tenants.standing import Ticket, admit, current_standings, is_from_here

logger = logging.getLogger(__name__)

SIGNED_OUT = 4401
NOT_VISIBLE = 4403
MALFORMED = 4400
MOST_TOPICS = 20
MOST_TEXT = 16_384
# A changed role, a revoked token or a logout closes sockets within 5 s.
CHECK_SECONDS = 2.0


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One page."""

    socket: Socket | None = None
    ticket: Ticket | None = None

    async def connect(self) -> None:
        """Accept a page of ours. One that is not signed in is told so by a close code, which needs accepting."""
        if not is_from_here(self.scope):
            await self.close()
            return
        admitted = await hub.in_thread(admit, self.scope, timezone.now())
        await self.accept()
        if admitted is None:
            await self.close(SIGNED_OUT)
            return
        self.ticket, viewer = admitted
        self.socket = Socket(viewer, self._send_text, self._close)
        await hub.join(self.socket)
        warden.watch(self.socket, self.ticket)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The one message that pages send: subscribe."""
        wanted = _subscription(text_data or "")
        if self.socket is None:
            return
        if wanted is None:
            await self.close(MALFORMED)
            return
        topics, after = wanted
        if not await hub.subscribe(self.socket, topics, after):
            await self.close(NOT_VISIBLE)

    async def disconnect(self, code: int) -> None:
        """The page has gone."""
        if self.socket is not None:
            warden.forget(self.socket)
            await hub.leave(self.socket)
            self.socket = None

    async def _send_text(self, text: str) -> None:
        await self.send(text_data=text)

    async def _close(self, code: int) -> None:
        await self.close(code)


class Warden:
    """Looks after all sockets of the process: closes those whose people stand otherwise than when they came."""

    def __init__(self) -> None:
        self._watched: dict[Socket, Ticket] = {}
        self._round: asyncio.Task[None] | None = None

    def watch(self, socket: Socket, ticket: Ticket) -> None:
        """Begin to look after a socket."""
        self._watched[socket] = ticket
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._rounds(), name="live-warden")

    def forget(self, socket: Socket) -> None:
        """The socket is closed."""
        self._watched.pop(socket, None)

    async def _rounds(self) -> None:
        while self._watched:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._look()
            except DatabaseError as error:  # nobody is thrown out because we cannot look
                logger.warning("standings cannot be read: %s", error)

    async def _look(self) -> None:
        watched = dict(self._watched)
        standings = await hub.in_thread(current_standings, set(watched.values()), timezone.now())
        for socket, ticket in watched.items():
            now = standings[ticket]
            if now != ticket.standing:
                self.forget(socket)
                await hub.leave(socket)
                await socket.close(SIGNED_OUT if now is None else NOT_VISIBLE)


warden = Warden()


class Nowhere(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Answers websockets to any other address: refused."""

    async def connect(self) -> None:
        """Refuse the handshake."""
        await self.close()
        raise StopConsumer


def _subscription(text: str) -> tuple[list[str], int] | None:
    """Topics and the last seq of a subscribe message; None for anything else."""
    if len(text) > MOST_TEXT:
        return None
    try:
        message: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("type") != "subscribe":
        return None
    topics, after = message.get("topics"), message.get("after", 0)
    if not isinstance(topics, list) or len(topics) > MOST_TOPICS:
        return None
    if not all(
        isinstance(topic, str) and len(topic) < 200 and "\x00" not in topic for topic in topics
    ):
        return None
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < 2**63:
        return None
    return topics, after
