"""`Idempotency-Key`: a POST that is sent twice acts once (draft-ietf-httpapi-idempotency-key-header).

    class Jobs(APIView):
        @idempotent()
        def post(self, request: Request) -> Response: ...

The answer is stored in the transaction that acts, so there is no moment in which one exists without the other.
A refusal rolls back with its key: the same key may be tried again with a mended body.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, TypeVar, cast

from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from controlplane.common import log
from controlplane.common.errors import ApplicationError, ConflictError, InvalidError
from controlplane.common.models import IdempotencyKey

KEPT = timedelta(hours=24)
KEPT_HEADERS = ("Location", "ETag")
View = TypeVar("View", bound=Callable[..., Response])


class KeyReusedError(ApplicationError):
    """The key belongs to another request."""

    status = 422
    default_code = "idempotency_key_reused"


def idempotent(*, once: Sequence[str] = ()) -> Callable[[View], View]:
    """Make a view's POST honour `Idempotency-Key`.

    once: fields of the answer that are shown once and not kept (a token): null in a replay.
    """

    def decorate(method: View) -> View:
        @wraps(method)
        def acting(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            key = request.headers.get("Idempotency-Key")
            if key is None:
                return method(view, request, *args, **kwargs)
            claim = Claim(_owner(request), _checked(key), _request_hash(request), timezone.now())
            return claim.answer(lambda: method(view, request, *args, **kwargs), once)

        acting.honours_idempotency_key = True  # type: ignore[attr-defined]
        return cast(View, acting)

    return decorate


class Claim:
    """One request's claim on its key."""

    def __init__(self, owner: str, key: str, request_hash: str, now: datetime) -> None:
        self.owner, self.key, self.request_hash, self.now = owner, key, request_hash, now

    def answer(self, act: Callable[[], Response], once: Sequence[str]) -> Response:
        """The stored answer, or that of `act`, stored in its transaction."""
        known = self._known()
        if known is not None:
            return self._replay(known)
        with log.writing():
            self._only_one_at_a_time()
            known = self._known()  # it may have been committed since the first look
            if known is None:
                return self._first(act, once)
        return self._replay(known)

    def _known(self) -> IdempotencyKey | None:
        found = IdempotencyKey.objects.filter(owner=self.owner, key=self.key).first()
        return found if found is not None and found.created_at > self.now - KEPT else None

    def _only_one_at_a_time(self) -> None:
        """PostgreSQL: whoever holds the key's lock acts, others hear 409. SQLite has one writer anyway."""
        if connection.vendor != "postgresql":
            return
        digest = hashlib.sha256(f"{self.owner}\n{self.key}".encode()).digest()
        number = int.from_bytes(digest[:8], "big", signed=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
            row = cursor.fetchone()
        if not (row and row[0]):
            raise self._in_progress()

    def _first(self, act: Callable[[], Response], once: Sequence[str]) -> Response:
        IdempotencyKey.objects.filter(owner=self.owner, key=self.key).delete()  # one that expired
        response = act()
        if response.status_code < 400:
            self._keep(response, once)
        return response

    def _keep(self, response: Response, once: Sequence[str]) -> None:
        body = json.loads(json.dumps(response.data, cls=JSONEncoder))
        for name in once:
            body[name] = None
        try:
            with transaction.atomic():
                IdempotencyKey.objects.create(
                    owner=self.owner,
                    key=self.key,
                    request_hash=self.request_hash,
                    status=response.status_code,
                    body=body,
                    headers={h: response[h] for h in KEPT_HEADERS if response.has_header(h)},
                    created_at=self.now,
                )
        except IntegrityError:
            raise self._in_progress() from None

    def _replay(self, known: IdempotencyKey) -> Response:
        if known.request_hash != self.request_hash:
            raise KeyReusedError(
                _("This Idempotency-Key was used for another request."),
                hint=_("Choose a new key for every request that differs."),
            )
        headers = {**known.headers, "Idempotency-Replayed": "true"}
        return Response(known.body, status=known.status, headers=headers)

    def _in_progress(self) -> ConflictError:
        return ConflictError(
            _("The first request with this Idempotency-Key is still being worked on."),
            code="idempotency_in_progress",
            hint=_("Send the same request again in a second."),
            extra={"retry_after_seconds": 1},
        )


def _owner(request: Request) -> str:
    """Two people may choose the same key; so may two tokens of one person, and an attempt."""
    proof = request.auth
    if proof is None:
        return f"user:{request.user.pk}"
    kind = proof._meta.model_name
    return f"token:{proof.pk}" if kind == "apitoken" else f"{kind}:{proof.pk}"


def _checked(key: str) -> str:
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise InvalidError(
            _("Idempotency-Key must have 1 to 255 printable ASCII characters."),
            code="invalid_idempotency_key",
        )
    return key


def _request_hash(request: Request) -> str:
    """What makes two requests the same: method, address and content. Keyed: a body may hold a secret."""
    body = json.dumps(request.data, sort_keys=True, cls=JSONEncoder)
    address = f"{request.method} {request.get_full_path()}"
    return salted_hmac("idempotency", f"{address}\n{body}", algorithm="sha256").hexdigest()
