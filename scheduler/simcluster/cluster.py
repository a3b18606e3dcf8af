"""A whole simulated cluster: `async with SimCluster(profile="demo") as sim: sim.url`.

The assembly of world, kubelets, controllers and API. Runs in the event loop of whoever starts it;
`background.ThreadedSimCluster` runs one in a thread, `python -m scheduler.simcluster` in a process.
"""

import asyncio
import hashlib
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from aiohttp import web

from scheduler.simcluster.api.access import Access
from scheduler.simcluster.api.server import ApiServer
from scheduler.simcluster.api.verbs import Verbs
from scheduler.simcluster.clock import Clock, RunningClock
from scheduler.simcluster.controllers.budgets import BudgetController
from scheduler.simcluster.controllers.eviction import OrphanedPods, TaintEviction
from scheduler.simcluster.controllers.garbage import GarbageCollector
from scheduler.simcluster.controllers.namespaces import NamespaceController
from scheduler.simcluster.controllers.nodelife import NodeLifeController
from scheduler.simcluster.controllers.quotas import QuotaController
from scheduler.simcluster.controllers.scheduler import DefaultScheduler
from scheduler.simcluster.controllers.volumes import VolumeController
from scheduler.simcluster.faults.actions import Actions
from scheduler.simcluster.faults.catalogue import Injector
from scheduler.simcluster.faults.control import ControlApi
from scheduler.simcluster.faults.gate import Gate
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.profiles.model import Profile, load_profile
from scheduler.simcluster.store.store import Change
from scheduler.simcluster.world import World

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How a cluster runs, beside its profile."""

    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    rbac: bool = False
    kubeconfig_path: Path | None = None
    admin_token: str = ""
    digest: bool = False
    """Keep a digest of every commit, to compare runs."""
    socket: Path | None = None
    """Listen on this Unix socket instead of a port."""


class SimCluster:
    """A simulated cluster with its API server."""

    def __init__(
        self, profile: Profile | str = "demo", *, clock: Clock | None = None,
        options: Options | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        self.options = options or Options()
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        self.clock = clock or RunningClock()
        self.seed = self.options.seed if seed is None else seed
        self.world = World(self.clock, self.seed)
        self.admin_token = self.options.admin_token or secrets.token_hex(16)
        self.access = Access(self.world, self.admin_token, rbac=self.options.rbac)
        self._digest = hashlib.sha256()
        if self.options.digest:
            self.world.store.journal = self._note
        self.fleet = Fleet(self.world, self.profile)
        self.verbs = Verbs(self.world, self.fleet, self.access)
        self.controllers = self._make_controllers()
        self.world.make_namespaces()
        self.fleet.join_all()
        self.world.timers.after(300, self.world.expire_events)
        self.world.timers.settle()
        self.gate = Gate(self.world, self.verbs)
        self.faults = Injector(self.world, Actions(self.fleet), self.gate)
        self.control = ControlApi(self.world, self.fleet, self.verbs, self.access, self.faults)
        self._api = ApiServer(self.world, self.verbs, self.access, self.control.handle, self.gate)
        self._runner: web.ServerRunner | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.port = self.options.port
        self.kubeconfig = ""

    def _make_controllers(self) -> list[object]:
        world, pods = self.world, self.fleet.pods
        volumes = VolumeController(world)
        controllers: list[object] = [
            QuotaController(world), NamespaceController(world), BudgetController(world),
            GarbageCollector(world), volumes,
        ]  # fmt: skip
        if self.profile.node_controller:
            volumes.make_classes()
            controllers += [
                NodeLifeController(world, pods, self.profile.node_grace_seconds),
                TaintEviction(world, pods), OrphanedPods(world),
                DefaultScheduler(world, pods, self.verbs.pods),
            ]  # fmt: skip
        return controllers

    def _note(self, change: Change) -> None:
        resource = change.resource
        self._digest.update(
            f"{change.type} {resource.qualified} {change.now.key} ".encode()
            + change.now.raw
            + b"\n"
        )

    @property
    def history_digest(self) -> str:
        """A digest of every commit so far; equal for runs that were the same."""
        return self._digest.hexdigest()

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"http://{self.options.host}:{self.port}"

    async def start(self) -> None:
        """Listens, runs the timers, writes the kubeconfig."""
        server = web.Server(self._api.handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        if self.options.socket is not None:
            await web.UnixSite(self._runner, self.options.socket, backlog=1024).start()
        else:
            site = web.TCPSite(self._runner, self.options.host, self.options.port, backlog=1024)
            await site.start()
            self.port = self._runner.addresses[0][1]
        self.world.timers.attach(asyncio.get_running_loop())
        self.kubeconfig = str(self._write_kubeconfig())

    async def stop(self) -> None:
        """Closes every connection and stops the timers."""
        self.world.timers.detach()
        for watch in list(self.verbs.watches):
            watch.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def advance(self, seconds: float) -> None:
        """Moves a stepped clock; raises TypeError on another one."""
        self.world.timers.advance(seconds)

    def _write_kubeconfig(self) -> Path:
        path = self.options.kubeconfig_path
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="simcluster-")
            path = Path(self._folder.name) / "kubeconfig"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(self.kubeconfig_body()), encoding="utf-8")
        path.chmod(0o600)
        return path

    def kubeconfig_body(self, token: str | None = None, user: str = "admin") -> Json:
        """A kubeconfig for this cluster, with the administrator's token or another one."""
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "sim",
            "clusters": [{"name": "sim", "cluster": {"server": self.url}}],
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": user}}],
            "users": [{"name": user, "user": {"token": token or self.admin_token}}],
        }  # fmt: skip
