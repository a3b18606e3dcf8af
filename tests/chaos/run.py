"""One run: the rows and the simulated cluster of a plot, its processes, its faults, and the verdict."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from django.db import DatabaseError, connection

from controlplane.common.errors import ConflictError
from queues.models import Cluster, Job, Level
from queues.services.jobs import cancel_job, hold_job, release_job, requeue_job, submit_job
from queues.services.validation import validate_job
from scheduler.logstore import LogStore
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from scheduler.simcluster.store.resources import PODS
from scheduler.snapshot.warm import WarmSnapshot, differences
from tests import factories
from tests.chaos.cast import (
    BEAT_SECONDS,
    QUIET_BEAT_SECONDS,
    Backstage,
    Routine,
    Supervised,
    Worker,
)
from tests.chaos.crashes import CrashPoints, Database
from tests.chaos.hospital import (
    Doctor,
    announce,
    health_routine,
    let_rules_act,
    technician_routine,
)
from tests.chaos.judge import (
    MOVES_ON_SECONDS,
    Witness,
    digest,
    gangs_in_part,
    gpus_twice,
    leftovers,
    under_minimum,
    untrue_rows,
    wrong_ends,
    wrong_now,
)
from tests.chaos.plot import BUSY, Act, Fault, JobPlan, Plot, WindowPlan
from tests.chaos.seams import complaints, patched
from tests.chaos.virtual import START, LoopClock, VirtualLoop
from tests.deploy.roles import install_roles, refused_to_us
from tests.simcluster.direct import Direct

LONGEST_SECONDS = 2400.0
LONGEST_OF_HOURS_SECONDS = 4 * 3600.0
"""So long has every job after calm has come: a back-off may last ten minutes, and long jobs wait for one another."""
LOOK_ON_SECONDS = 90.0
"""Every fourth run goes on for so long after all is over: what comes back is found by the minute's comparison."""
SECOND_LOOK_SECONDS = 10.0
TABLES_THAT_STAY = {"django_migrations", "django_content_type", "auth_permission"}


@dataclass(slots=True)
class Report:
    """What a run came to."""

    plot: Plot
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    virtual_seconds: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    """By kind of fault, and by step of a process's death: how often it hit something."""
    starts: Counter[str] = field(default_factory=Counter)
    """Pods placed, by the health of their node at that moment; only where rules act."""
    old_plans_refused: int = 0
    attempts: int = 0
    processor_seconds: float = 0.0

    def told(self) -> str:
        """For the message of a failed test."""
        return "\n".join([self.plot.told(), *(f"  ! {text}" for text in self.violations)])


def summary(reports: list[Report]) -> str:
    """What the runs went through."""
    struck, starts = Counter[str](), Counter[str]()
    for report in reports:
        struck += report.struck
        starts += report.starts
    return (
        f"{sum(r.virtual_seconds for r in reports):.0f} s of virtual time, "
        f"{sum(r.processor_seconds for r in reports) / len(reports):.1f} s of CPU a run, "
        f"{sum(r.attempts for r in reports)} attempts, "
        f"{sum(r.old_plans_refused for r in reports)} plans of deposed leaders refused, "
        f"struck: {dict(sorted(struck.items()))}" + (f", placed: {dict(starts)}" if starts else "")
    )


def run(
    plot: Plot, routines: Sequence[Routine] = (), meddle: "Callable[[Play], None] | None" = None
) -> Report:
    """Play a plot to its end. The database must be there and is emptied first.

    meddle: called when all jobs have finished, before the judge looks; for tests of the judge.
    """
    empty_database()
    began = time.process_time()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        play = Play(plot, LoopClock(runner.get_loop()), Path(folder), routines)
        play.meddle = meddle
        report = runner.run(play.perform())
    report.processor_seconds = time.process_time() - began
    return report


def empty_database() -> None:
    """As after the migrations, with all numbers from one again."""
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor)) - TABLES_THAT_STAY
        names = ", ".join(connection.ops.quote_name(name) for name in sorted(tables))
        cursor.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")


class Play:
    """A run while it lasts."""

    def __init__(
        self, plot: Plot, clock: LoopClock, folder: Path, routines: Sequence[Routine]
    ) -> None:
        self.plot, self.clock, self._routines = plot, clock, routines
        self.dice = Random(f"play-{plot.seed}")
        self.points = CrashPoints()
        self.database = Database(self.points)
        self._make_rows()
        self.stage = Backstage(
            self.cluster, clock, self.points, folder / "api", LogStore(folder / "logs"),
            jitter=Random(f"jitter-{plot.seed}").random,
        )  # fmt: skip
        profile = uniform_profile(plot.nodes, nodes_per_leaf=plot.nodes_per_leaf)
        options = Options(seed=plot.seed, digest=True, socket=folder / "api", rbac=True)
        self.sim = SimCluster(profile, clock=clock, options=options)
        install_roles(self.sim)
        self.direct = Direct(self.sim)
        self.witness = Witness(self.sim)
        # Two workers race for the lease; where health is what matters one is enough.
        workers, beat = (1, QUIET_BEAT_SECONDS) if plot.health else (2, BEAT_SECONDS)
        self.workers = [Worker(f"worker-{n}", self.stage, beat) for n in range(workers)]
        self.process = Supervised(self.stage)
        self._others: list[asyncio.Task[None]] = []
        self.doctor = Doctor(self.sim)
        if plot.health:
            let_rules_act(self.cluster, clock())
            self._routines = [
                *routines,
                health_routine(self.cluster, self.sim),
                technician_routine(self.cluster, self.sim),
            ]
        self.cancelled: set[int] = set()
        self.meddle: Callable[[Play], None] | None = None
        self.report = Report(plot)

    def _make_rows(self) -> None:
        self.cluster: Cluster = factories.make_cluster()
        for name, tier in (("spine", 1), ("leaf", 0)):
            label = f"fabric.topograph.run/tier-{tier}"
            Level.objects.filter(cluster=self.cluster, name=name).update(node_label=label)
        self.actors = {}
        for slug, person in (("research", "ravi"), ("vision", "mei")):
            tenant = factories.make_tenant(slug, "labs")
            factories.make_queue(tenant, nominal=self.plot.nominal)
            self.actors[slug] = factories.actor_of(factories.make_member(tenant, person))

    async def perform(self) -> Report:
        """The whole run."""
        with patched(self), complaints(self.stage), self.database.between():
            self.witness.attach()
            await self.sim.start()
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(self.sim.stop)
                cast = [*(worker.run() for worker in self.workers), self.process.run()]
                cast += [routine.run(self.stage) for routine in self._routines]
                tasks = [asyncio.create_task(member) for member in cast]
                stack.push_async_callback(_end, tasks)
                stack.push_async_callback(_end, self._others)
                await self._play(tasks)
            self.report.digest = digest(self.sim)
        return self.report

    async def _play(self, cast: list["asyncio.Task[None]"]) -> None:
        scenes: list[tuple[float, Callable[[], Any]]] = []
        scenes += [(job.at, self._submitter(n, job)) for n, job in enumerate(self.plot.jobs)]
        scenes += [(act.at, self._actor(act)) for act in self.plot.acts]
        scenes += [(fault.at, self._fault(fault)) for fault in self.plot.faults]
        scenes += [(window.at, self._announcer(window)) for window in self.plot.windows]
        for at, scene in sorted(scenes, key=lambda item: item[0]):
            await self._until(at)
            scene()
        await self._until(self.plot.calm_from)
        self._calm()
        await self._until(self.plot.calm_from + MOVES_ON_SECONDS)
        await self._judge_movement()
        await self._until_all_finished()
        await self._settle()
        if self.meddle is not None:
            self.meddle(self)
        self._judge_end()
        self.report.violations += [f"died: {t.exception()!r}" for t in cast if t.done()]

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - (self.clock.now() - START)))

    # What people do.

    def _submitter(self, number: int, plan: JobPlan) -> Callable[[], None]:
        def submit() -> None:
            actor = self.actors[plan.fields["tenant"]]
            try:
                submit_job(actor, validate_job(actor, plan.fields, self.clock()), self.clock())
            except DatabaseError:  # 503: the client sends it again, under the same external id
                connection.close()
                asyncio.get_running_loop().call_later(1.0, submit)
            except ConflictError:
                pass  # it had been taken after all

        return submit

    def _actor(self, act: Act) -> Callable[[], None]:
        if act.what == "cancel":
            self.cancelled.add(act.job)
        return lambda: self._do(act.what, act.job)

    def _do(self, what: str, number: int) -> None:
        verbs = {"cancel": cancel_job, "hold": hold_job, "release": release_job,
                 "requeue": requeue_job}  # fmt: skip
        try:
            job = Job.objects.filter(external_id=f"chaos-{number}").first()
            if job is not None:
                verbs[what](self.actors[job.tenant.slug], job, "chaos", self.clock())
            if what == "hold":
                asyncio.get_running_loop().call_later(20.0, self._do, "release", number)
        except ConflictError:
            pass  # it is past that
        except DatabaseError:
            connection.close()
            asyncio.get_running_loop().call_later(1.0, self._do, what, number)

    # What goes wrong.

    def _fault(self, fault: Fault) -> Callable[[], None]:
        parameters = fault.parameters
        begin: dict[str, Callable[[], None]] = {
            "crash": lambda: self.points.arm(parameters["step"], parameters["nth"]),
            "database_cut": lambda: setattr(self.database, "cut_in", parameters["nth"]),
            "commit_lost": lambda: setattr(self.database, "lose_commit_in", parameters["nth"]),
            "database_away": lambda: self._database_away(fault.seconds),
            "pod_deleted": lambda: self._delete_pod(**parameters),
            "foreign_pod": lambda: self._foreign_pod(**parameters, seconds=fault.seconds),
            "second_cluster_process": lambda: self._second_process(fault.seconds),
        }
        return begin.get(fault.kind) or (lambda: self._break(fault))

    def _break(self, fault: Fault) -> None:
        """Something breaks in the simulated cluster, and heals by itself."""
        parameters = dict(fault.parameters)
        if parameters.get("node") == BUSY:
            busy = self.witness.busy_nodes()
            parameters["node"] = busy[0] if busy else sorted(self.sim.fleet.kubelets)[0]
        self.doctor.note_fault(replace(fault, parameters=parameters))
        self.report.struck[fault.kind] += not fault.kind.startswith(("api_", "watch_"))
        self.sim.faults.begin(fault.kind, parameters, fault.seconds)

    def _second_process(self, seconds: float) -> None:
        """A cluster process beside the one that there is, for a while; then kill -9."""
        other = asyncio.get_running_loop().create_task(Supervised(self.stage).run())
        asyncio.get_running_loop().call_later(seconds, other.cancel)
        self._others.append(other)
        self.report.struck["second_cluster_process"] += 1

    def _announcer(self, window: WindowPlan) -> Callable[[], None]:
        return lambda: announce(self.cluster, window, self.clock())

    def _database_away(self, seconds: float) -> None:
        self.database.away = True
        asyncio.get_running_loop().call_later(seconds, setattr, self.database, "away", False)

    def _delete_pod(self, nth: int, grace_seconds: int) -> None:
        """As a person does by kubectl."""
        names = self.witness.unfinished()
        if names:
            name = names[nth % len(names)]
            self.report.struck["pod_deleted"] += 1
            pods = self.sim.world.store.collection(PODS).objects
            namespace = next(key[0] for key in sorted(pods) if key[1] == name)
            address = f"/api/v1/namespaces/{namespace}/pods/{name}"
            self.direct.call("DELETE", address, {"gracePeriodSeconds": grace_seconds})

    def _foreign_pod(self, node: str, gpus: int, seconds: float) -> None:
        """Somebody else's pod, bound around everybody; the kubelet may refuse it."""
        container = {
            "name": "main", "image": "busybox",
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        }  # fmt: skip
        name = f"foreign-{self.dice.randrange(10**6)}"
        self.report.struck["foreign_pod"] += 1
        notes = {"sim.muster.dev/run-seconds": "forever"}
        spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
        address = "/api/v1/namespaces/default/pods"
        self.direct.call(
            "POST", address, {"metadata": {"name": name, "annotations": notes}, "spec": spec}
        )
        options = {"gracePeriodSeconds": 0}
        asyncio.get_running_loop().call_later(
            seconds, self.direct.call, "DELETE", f"{address}/{name}", options
        )

    def _calm(self) -> None:
        self.points.disarm()
        self.sim.faults.end_all()
        self.database.away = False
        self.database.cut_in = self.database.lose_commit_in = 0

    # What must hold.

    async def _judge_movement(self) -> None:
        """A minute after the last fault: what looks wrong now must not still be wrong ten seconds later."""
        if wrong_now(self.witness):
            await asyncio.sleep(SECOND_LOOK_SECONDS)
            self.report.violations += wrong_now(self.witness)

    async def _until_all_finished(self) -> None:
        longest = LONGEST_OF_HOURS_SECONDS if self.plot.health else LONGEST_SECONDS
        end = self.plot.calm_from + longest
        while Job.objects.exclude(phase="finished").exists():
            if self.clock.now() - START > end:
                return
            await asyncio.sleep(15 if self.plot.health else 5)

    async def _settle(self) -> None:
        """What the last jobs leave behind is put away within a minute."""
        for _look in range(int(MOVES_ON_SECONDS / 5)):
            if not leftovers(self.witness):
                break
            await asyncio.sleep(5)
        await asyncio.sleep(LOOK_ON_SECONDS if self.plot.seed % 4 == 0 else 5)

    def _judge_end(self) -> None:
        now = self.clock.now()
        jobs = Job.objects.prefetch_related("roles")
        least = {job.pk: sum(role.min_replicas for role in job.roles.all()) for job in jobs}
        calm = START + self.plot.calm_from
        found = wrong_ends(list(self.plot.jobs), self.cancelled, self.doctor.own_hits)
        found += self.doctor.bad_starts
        found += leftovers(self.witness) + untrue_rows() + under_minimum()
        found += gpus_twice(self.witness.sightings)
        found += gangs_in_part(self.witness.sightings, least, calm, now)
        found += self._warm_snapshots_that_differ()
        found += [f"forbidden by the shipped role: {text}" for text in refused_to_us(self.sim)]
        self.report.violations += found + self.stage.complaints
        self.report.virtual_seconds = now - START
        self.report.struck += self.points.died_at + self.database.struck + self.sim.gate.struck
        self.report.starts = self.doctor.starts
        self.report.old_plans_refused = self.stage.old_plans_refused
        self.report.attempts = sum(job.attempts.count() for job in jobs)

    def _warm_snapshots_that_differ(self) -> list[str]:
        found: list[str] = []
        for worker in self.workers:
            kept = worker.loop and worker.loop._kept
            if kept:
                kept.warm.refresh()
                cold = WarmSnapshot(self.cluster.pk, self.cluster.name)
                cold.refresh()
                now = self.clock.now()
                found += differences(kept.warm.snapshot(now), cold.snapshot(now))
        return [f"the warm snapshot differs: {text}" for text in found]


async def _end(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
