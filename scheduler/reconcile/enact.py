"""Carries actions out in Kubernetes, many at once; the outcome goes back to `tick`.

Called by `process`, in the event loop; knows no rows. Whatever fails for a reason that may pass
is tried again after a back-off, in which the action still counts as under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from scheduler.kube.burn_in import BurnInPod, burn_in_manifest, make_own_namespace
from scheduler.kube.claims import need_default_scheduler
from scheduler.kube.connection import Connection
from scheduler.kube.errors import (
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from scheduler.kube.manifests import NOTICE_ANNOTATION
from scheduler.kube.namespaces import NamespaceWanted, apply_namespace, read_drift
from scheduler.kube.nodes import set_cordon, set_labels, set_out_taint
from scheduler.kube.pods import (
    PodKey,
    annotate_pod,
    bind_pod,
    create_named_pod,
    create_pod,
    delete_pod,
    evict_pod,
    last_event,
)
from scheduler.kube.priorities import ensure_priority_class
from scheduler.kube.seen import PodSeen
from scheduler.kube.services import (
    apply_object,
    make_object,
    remove_attempt_objects,
    secret_manifest,
    service_manifest,
)
from scheduler.logstore import LogStore
from scheduler.reconcile import results
from scheduler.reconcile.describe import MASTER_PORT, attempt_name, gang_manifests
from scheduler.reconcile.logs import keep, keep_to_the_end
from scheduler.reconcile.orders import LaunchOrder
from scheduler.reconcile.view import AttemptKey
from scheduler.reconcile.wanted import (
    Action,
    Bind,
    Binding,
    CheckStart,
    Cordon,
    Delete,
    Evict,
    KeepLog,
    LabelNode,
    MakeBurnIn,
    Notify,
    OfNode,
    RemoveObjects,
    TaintNode,
)

logger = logging.getLogger(__name__)

LOG_SECONDS = 5.0
LOG_TRIES = 3
FOLLOWED_LOGS = 64
CHECKED_PODS = 32
_MAY_PASS = (Unavailable, TooManyRequests, Unauthorized)

Report = Callable[[results.Result], None]
Order = Action | LaunchOrder


def identity_of(order: Order) -> tuple[str, object]:
    """What must not be under way twice at the same time."""
    match order:
        case LaunchOrder(key=key) | Bind(key=key):
            return "start", key
        case RemoveObjects(key=key) | CheckStart(key=key):
            return type(order).__name__, key
        case Delete(pod=pod) | KeepLog(pod=pod) | Notify(pod=pod) | Evict(pod=pod):
            return type(order).__name__, pod.uid
        case (
            Cordon(node=node) | TaintNode(node=node) | LabelNode(node=node) | MakeBurnIn(node=node)
        ):
            return type(order).__name__, node
    raise TypeError(f"not to be carried out: {order!r}")


def again_after(order: Order) -> results.Result | None:
    """What makes the next tick look again at whatever the order was for."""
    match order:
        case (
            Cordon(node=node)
            | TaintNode(node=node)
            | LabelNode(node=node)
            | Evict(node=node)
            | MakeBurnIn(node=node)
        ):
            return results.LookAtNode(node)
        case Delete(key=None):
            return None  # a leftover: the next full pass meets it again
        case Delete(key=key) if key is not None:
            return results.Again(key)
        case (
            LaunchOrder(key=key)
            | Bind(key=key)
            | KeepLog(key=key)
            | Notify(key=key)
            | RemoveObjects(key=key)
            | CheckStart(key=key)
        ):
            return results.Again(key)
    raise TypeError(f"not to be carried out: {order!r}")


def _bindings(order: LaunchOrder, made: Mapping[int, PodSeen]) -> Iterable[Binding]:
    """Every pod of a gang that was made as a whole; one that was found there bound already is done."""
    for placement, at in order.missing.items():
        pod, node = made[placement], order.gang.seats[at].node
        if pod.node is None:
            yield Binding(placement, PodKey(pod.namespace, pod.name, pod.uid), node)


@dataclass(slots=True)
class Enactor:
    """`applied`: namespaces as this process has made them. `log_failures`: by pod's uid.
    `may_bind`: whether the attempt, as its rows were last read, is still to be started."""

    connection: Connection
    store: LogStore
    report: Report
    clock: Callable[[], datetime]
    may_bind: Callable[[AttemptKey], bool]
    applied: dict[str, NamespaceWanted] = field(default_factory=dict)
    _has_priority_class: bool = False
    # uids of the Services and Secrets that this process has made, by collection.
    _objects: dict[AttemptKey, dict[str, str]] = field(default_factory=dict)
    _namespace_locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _log_failures: dict[str, int] = field(default_factory=dict)
    _failures: dict[tuple[str, object], int] = field(default_factory=dict)
    _followers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FOLLOWED_LOGS))

    async def carry_out(self, order: Order) -> None:
        """Do it, and report; a failure that may pass is reported after its back-off."""
        identity = identity_of(order)
        try:
            await self._do(order)
            self._failures.pop(identity, None)
        except KubeError as error:
            await self._back_off(identity, error)
            again = again_after(order)
            if again is not None:
                self.report(again)

    async def _back_off(self, identity: tuple[str, object], error: KubeError) -> None:
        count = self._failures.get(identity, 0) + 1
        self._failures[identity] = count
        logger.warning("%s %s: %s", *identity, error)
        await asyncio.sleep(self.connection.delay_seconds(count, error.retry_after_seconds))

    async def _do(self, order: Order) -> None:
        match order:
            case LaunchOrder():
                await self._launch(order)
            case Bind():
                await self._bind(order)
            case Delete():
                await self._delete(order)
            case KeepLog():
                await self._keep_log(order)
            case Notify(pod=pod, notice=notice):
                await annotate_pod(self.connection, pod, {NOTICE_ANNOTATION: notice})
            case RemoveObjects():
                known = self._objects.pop(order.key, {})
                await remove_attempt_objects(self.connection, order.namespace, order.service, known)
                self.report(results.ObjectsRemoved(order.key))
            case CheckStart():
                await self._check_start(order)
            case Cordon() | TaintNode() | LabelNode() | Evict() | MakeBurnIn():
                await self._do_to_node(order)

    async def _do_to_node(self, order: OfNode) -> None:
        match order:
            case Cordon(node=node, unschedulable=unschedulable):
                await set_cordon(self.connection, node, unschedulable=unschedulable)
            case TaintNode(node=node, value=value):
                await set_out_taint(self.connection, node, value)
            case LabelNode(node=node, labels=labels):
                await set_labels(self.connection, node, dict(labels))
            case Evict(pod=pod):
                await evict_pod(self.connection, pod)
            case MakeBurnIn(pod=wanted):
                await self._make_burn_in(wanted)

    async def _make_burn_in(self, wanted: BurnInPod) -> None:
        await self._ensure_priority_class()
        try:
            await create_named_pod(self.connection, burn_in_manifest(wanted))
        except NotFound:
            # Muster runs outside this cluster: nobody has made its namespace here.
            await make_own_namespace(self.connection)
            await create_named_pod(self.connection, burn_in_manifest(wanted))

    async def mirror(self, wanted: NamespaceWanted) -> None:
        """Make a tenant's namespace as wanted; a refusal is told in the log, and tried again."""
        try:
            await self.ensure_namespace(wanted)
        except KubeError as error:
            await self._back_off(("namespace", wanted.name), error)
        else:
            self._failures.pop(("namespace", wanted.name), None)

    async def inspect(self, wanted: NamespaceWanted) -> None:
        """Compare a namespace that this process has made with what is wanted; changed, it is made again."""
        try:
            differences = await read_drift(self.connection, wanted)
        except KubeError as error:
            logger.info("namespace %s cannot be read: %s", wanted.name, error)
            return
        if differences:
            logger.warning("namespace %s was changed: %s", wanted.name, "; ".join(differences))
            self.applied.pop(wanted.name, None)
        self.report(results.NamespaceRead(wanted.name, differences))

    async def ensure_namespace(self, wanted: NamespaceWanted) -> None:
        """Make a tenant's namespace as wanted, unless this process has done so."""
        lock = self._namespace_locks.setdefault(wanted.name, asyncio.Lock())
        async with lock:
            await self._ensure_priority_class()
            if self.applied.get(wanted.name) != wanted:
                await apply_namespace(self.connection, wanted)
                self.applied[wanted.name] = wanted

    async def _ensure_priority_class(self) -> None:
        if self._has_priority_class:
            return
        try:
            await ensure_priority_class(self.connection)
        except Forbidden as error:
            # The installation's manifests ship it; if they did not, creating a pod says so.
            logger.warning("the priority class cannot be looked after: %s", error)
        self._has_priority_class = True

    async def _launch(self, order: LaunchOrder) -> None:
        """Service and Secret first, then all pods at once; what was made is told in any case."""
        try:
            default_scheduler = await self._prepare(order)
        except _MAY_PASS:
            raise
        except KubeError as error:
            if self._has_lost_namespace(order.namespace.name, error):
                raise Unavailable(error.message) from error
            self.report(results.Launched(order.key, {}, {}, refusal=error))
            return
        gang = replace(order.gang, default_scheduler=default_scheduler)
        manifests = gang_manifests(gang)
        made, errors = await self._together(
            {
                placement: create_pod(self.connection, manifests[at])
                for placement, at in order.missing.items()
            }
        )
        lasting, passing = self._sorted_errors(order.namespace.name, errors)
        self.report(results.Launched(order.key, made, lasting))
        if passing is not None and not lasting:
            raise passing
        if not errors and not default_scheduler and self.may_bind(order.key):
            # The gang is whole: binding need not wait until the rows know its pods.
            await self._bind(Bind(order.key, tuple(_bindings(order, made))))

    async def _prepare(self, order: LaunchOrder) -> bool:
        """All that pods refer to; True when the default scheduler has to bind them."""
        await self.ensure_namespace(order.namespace)
        name = attempt_name(order.gang.job, order.gang.attempt)
        await asyncio.gather(
            self._make_object(order.key, "services", service_manifest(name, MASTER_PORT)),
            self._make_object(order.key, "secrets", secret_manifest(name, order.secrets)),
            self._apply_pull_secret(order.pull_secret),
        )
        tied = await need_default_scheduler(self.connection, order.namespace.name, order.claims)
        return bool(tied)

    async def _make_object(
        self, key: AttemptKey, collection: str, manifest: Mapping[str, Any]
    ) -> None:
        uid = await make_object(self.connection, collection, manifest)
        self._objects.setdefault(key, {})[collection] = uid

    async def _apply_pull_secret(self, manifest: Mapping[str, Any] | None) -> None:
        if manifest is not None:
            await apply_object(self.connection, "secrets", manifest)

    def _has_lost_namespace(self, name: str, error: KubeError) -> bool:
        """True when the namespace itself is missing: somebody deleted it, it is made again."""
        if not isinstance(error, NotFound) or f'namespaces "{name}"' not in error.message:
            return False
        self.applied.pop(name, None)
        return True

    def _sorted_errors(
        self, namespace: str, errors: Mapping[int, KubeError]
    ) -> tuple[dict[int, KubeError], KubeError | None]:
        """Refusals that last, and one of those that may pass."""
        lasting: dict[int, KubeError] = {}
        passing: KubeError | None = None
        for placement, error in errors.items():
            if isinstance(error, _MAY_PASS) or self._has_lost_namespace(namespace, error):
                passing = error
            else:
                lasting[placement] = error
        return lasting, passing

    async def _together(
        self, calls: Mapping[int, Awaitable[Any]]
    ) -> tuple[dict[int, Any], dict[int, KubeError]]:
        """Await all, whatever becomes of each."""
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        made: dict[int, Any] = {}
        errors: dict[int, KubeError] = {}
        for placement, answer in zip(calls, answers, strict=True):
            if isinstance(answer, KubeError):
                errors[placement] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                made[placement] = answer
        return made, errors

    async def _bind(self, order: Bind) -> None:
        if not order.bindings:
            return
        done, errors = await self._together(
            {b.placement_id: bind_pod(self.connection, b.pod, b.node) for b in order.bindings}
        )
        lasting = {p: e for p, e in errors.items() if not isinstance(e, _MAY_PASS)}
        self.report(results.Bound(order.key, tuple(done), lasting))
        passing = next((e for e in errors.values() if isinstance(e, _MAY_PASS)), None)
        if passing is not None:
            raise passing

    async def _delete(self, order: Delete) -> None:
        """Keep the log as it is, ask the pod to end, and keep what it says while it ends."""
        keeps_log = order.running and order.log is not None
        if keeps_log:
            await self._keep_what_there_is(order)
        await delete_pod(self.connection, order.pod, order.grace_seconds)
        if order.key is None or order.placement_id is None:
            return
        self.report(results.DeleteSent(order.placement_id, order.key))
        if keeps_log:
            await self._keep_last_words(order)

    async def _keep_what_there_is(self, order: Delete) -> None:
        assert order.log is not None and order.key is not None  # noqa: PT018
        assert order.placement_id is not None
        try:
            async with asyncio.timeout(LOG_SECONDS):
                size = await keep(self.connection, self.store, order.pod, order.log)
        except (KubeError, TimeoutError) as error:
            # A kubelet that does not answer must not keep a job from ending.
            logger.warning("log of %s before its end: %s", order.pod.name, error)
            return
        self.report(results.LogKept(order.placement_id, order.key, size, final=False))

    async def _keep_last_words(self, order: Delete) -> None:
        assert order.log is not None and order.key is not None  # noqa: PT018
        assert order.placement_id is not None
        if self._followers.locked():
            return
        seconds = order.grace_seconds + LOG_SECONDS
        try:
            async with self._followers:
                size = await keep_to_the_end(
                    self.connection, self.store, order.pod, order.log, seconds
                )
        except (KubeError, TimeoutError):
            return  # what was kept before stands
        self.report(results.LogKept(order.placement_id, order.key, size, final=True))

    async def _keep_log(self, order: KeepLog) -> None:
        """Keep the log of a pod that has ended; after a few failures there is none to have."""
        try:
            size = await keep(
                self.connection, self.store, order.pod, order.log, last_words=order.lost
            )
        except _MAY_PASS:
            failures = self._log_failures.get(order.pod.uid, 0) + 1
            self._log_failures[order.pod.uid] = failures
            if failures < LOG_TRIES:
                raise
            self._give_log_up(order)
        except KubeError:
            self._give_log_up(order)
        else:
            self._log_failures.pop(order.pod.uid, None)
            self.report(results.LogKept(order.placement_id, order.key, size, final=True))

    def _give_log_up(self, order: KeepLog) -> None:
        self._log_failures.pop(order.pod.uid, None)
        self.report(results.LogKept(order.placement_id, order.key, None, final=True))

    async def _check_start(self, order: CheckStart) -> None:
        events = await asyncio.gather(
            *(last_event(self.connection, pod) for pod in order.pods[:CHECKED_PODS])
        )
        pulling = any(event is not None and event.reason == "Pulling" for event in events)
        self.report(results.StartChecked(order.key, pulling))
