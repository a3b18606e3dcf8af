"""The life of one pod on its node: pull, start, run, end, restart, stop.

A `PodRun` is made when a kubelet has admitted a pod. It moves by timers of the cluster's clock and
writes what a real kubelet would write; docs/simcluster.md lists every end with its marks.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from scheduler.simcluster.clock import Timer, stamp
from scheduler.simcluster.kubelet.behaviour import Behaviour
from scheduler.simcluster.kubelet.containers import Container
from scheduler.simcluster.kubelet.output import Output
from scheduler.simcluster.kubelet.pulling import Backoff, Pulls
from scheduler.simcluster.kubelet.references import missing_mount, missing_reference
from scheduler.simcluster.kubelet.status import conditions_of, phase_of
from scheduler.simcluster.nodes.machine import Machine
from scheduler.simcluster.store.store import Key, Store
from scheduler.simcluster.world import Subject, World

Json = dict[str, Any]
BACKOFF_RESET_SECONDS = 600.0
KILLED = 137
LOST_MESSAGE = "The container could not be located when the pod was terminated"
START_ERROR = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    'create failed: unable to start container process: exec: "{command}": executable file not '
    "found in $PATH: unknown"
)


class Host(Protocol):
    """What a run needs of its kubelet."""

    world: World
    machine: Machine

    def publish(self, run: "PodRun") -> None:
        """Writes the run's status to the API."""

    def released(self, run: "PodRun") -> None:
        """The run's containers have all ended for good."""

    def finish_deletion(self, run: "PodRun") -> None:
        """The pod was asked to go and its containers have ended."""


class PodRun:
    """One admitted pod."""

    def __init__(self, host: Host, key: Key, body: Json, behaviour: Behaviour) -> None:
        self.host, self.key, self.behaviour = host, key, behaviour
        self.uid: str = body["metadata"]["uid"]
        self.spec: Json = body["spec"]
        self.started_at = host.world.clock.now()
        self.containers = [Container(c["name"], c["image"]) for c in self.spec["containers"]]
        self.inits = [
            Container(c["name"], c["image"]) for c in self.spec.get("initContainers") or []
        ]
        self.hung = False
        """Whether its processes hang: they run, print nothing and keep no GPU busy."""
        self.pod_ip = ""
        self.reason = ""
        self.message = ""
        self.extra_condition: Json | None = None
        self.failed_whole = False
        """Ended by the kubelet (deadline, eviction): Failed whatever the containers say."""
        self.stopping = False
        self.deleting = False
        self.done = False
        self._timers: dict[str, Timer] = {}
        self._backoff = Backoff()
        self._pulls = Pulls(self)
        self._draw = host.world.identities.stable("run", *key)

    @property
    def restart_policy(self) -> str:
        """The pod's restart policy."""
        return str(self.spec.get("restartPolicy", "Always"))

    @property
    def phase(self) -> str:
        """The pod's phase now."""
        if self.failed_whole and not any(container.running for container in self.containers):
            return "Failed"
        policy = "Never" if self.stopping else self.restart_policy
        return phase_of(self.containers, policy)

    def begin(self) -> None:
        """Right after admission: shows ContainerCreating and starts on volumes and images."""
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is not None:
            self.after("deadline", float(deadline), self._deadline)
        self.host.publish(self)
        self._mount()

    def status(self, old: Json) -> Json:
        """The whole status of the pod as the kubelet writes it over `old`."""
        phase = self.phase
        running_network = bool(self.pod_ip) and not self.done
        now_text = stamp(self.host.world.clock.now())
        conditions = conditions_of(
            self.containers, phase, old.get("conditions") or [], now_text,
            has_network=running_network,
            uninitialized=[init.name for init in self.inits if init.ended is None],
        )  # fmt: skip
        if self.extra_condition is not None:
            conditions = [c for c in conditions if c["type"] != self.extra_condition["type"]]
            conditions.append(self.extra_condition)
        address = self.host.machine.address
        status: Json = {"phase": phase, "conditions": conditions}
        if self.reason:
            status["reason"] = self.reason
        if self.message:
            status["message"] = self.message
        status |= {"hostIP": address, "hostIPs": [{"ip": address}]}
        if self.pod_ip:
            status |= {"podIP": self.pod_ip, "podIPs": [{"ip": self.pod_ip}]}
        status["startTime"] = stamp(self.started_at)
        if self.inits:
            status["initContainerStatuses"] = [init.status() for init in self.inits]
        status["containerStatuses"] = [container.status() for container in self.containers]
        status["qosClass"] = old.get("qosClass", "BestEffort")
        return status

    def event(self, type_: str, reason: str, message: str, container: str = "") -> None:
        """An event about the pod, from its kubelet."""
        path = f"spec.containers{{{container}}}" if container else ""
        source = {"component": "kubelet", "host": self.host.machine.name}
        subject = Subject("Pod", self.key[1], self.key[0], self.uid, path)
        self.host.world.record(subject, type_, reason, message, source)

    def after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Sets a named timer in place of an earlier one; none for an infinite wait."""
        self._cancel(name)
        if not math.isinf(seconds):
            self._timers[name] = self.host.world.timers.after(seconds, action)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _cancel_all(self) -> None:
        for name in list(self._timers):
            self._cancel(name)

    # Starting.

    def _mount(self) -> None:
        problem = missing_mount(self.store, self.key[0], self.spec)
        if problem:
            self.event("Warning", "FailedMount", problem)
            self.after("mount", 2.0, self._mount)
            return
        self._initialize(0)

    def _initialize(self, place: int) -> None:
        """Runs the init containers one after another, then starts on the others."""
        if self.stopping:
            return
        if place < len(self.inits):
            init = self.inits[place]
            self._pulls.begin(init, lambda: self._start_init(init, place))
            return
        if self.inits:
            self.host.publish(self)
        for container in self.containers:
            self._pulls.begin(container, partial(self._create, container))

    def _start_init(self, init: Container, place: int) -> None:
        now = self.host.world.clock.now()
        container_id = f"containerd://{self._draw.getrandbits(256):064x}"
        if not self.pod_ip:
            self.pod_ip = self._new_address()
        init.start(now, container_id, self._output(init, now))
        self.event("Normal", "Started", f"Started container {init.name}", init.name)
        self.host.publish(self)
        self.after(
            f"end {init.name}", self.behaviour.init_seconds, lambda: self._end_init(init, place)
        )

    def _end_init(self, init: Container, place: int) -> None:
        init.end(self.host.world.clock.now(), 0, "Completed")
        self._initialize(place + 1)

    @property
    def store(self) -> Store:
        """The cluster's objects."""
        return self.host.world.store

    @property
    def machine(self) -> Machine:
        """The machine that it runs on."""
        return self.host.machine

    def wait(self, container: Container, reason: str, message: str) -> None:
        """Shows a container as waiting."""
        container.wait(reason, message)
        self.host.publish(self)

    def _create(self, container: Container) -> None:
        if self.stopping:
            return
        problem = missing_reference(self.store, self.key[0], self.spec, container.name)
        if not problem and self.behaviour.fault == "config":
            problem = 'secret "missing" not found'
        if problem:
            self.event("Warning", "Failed", f"Error: {problem}", container.name)
            self.wait(container, "CreateContainerConfigError", problem)
            self.after(f"create {container.name}", 5.0, lambda: self._create(container))
            return
        self.after(
            f"start {container.name}", self.behaviour.start_seconds, lambda: self._start(container)
        )

    def _start(self, container: Container) -> None:
        if self.stopping:
            return
        now = self.host.world.clock.now()
        container_id = f"containerd://{self._draw.getrandbits(256):064x}"
        self.event("Normal", "Created", f"Created container: {container.name}", container.name)
        if not self.pod_ip:
            self.pod_ip = self._new_address()
        if self.behaviour.fault == "run":
            command = (self._spec_of(container).get("command") or ["train"])[0]
            message = START_ERROR.format(command=command)
            container.id = container_id
            self.event("Warning", "Failed", f"Error: {message}", container.name)
            container.end(now, 128, "StartError", message)
            self._ended(container)
            return
        container.start(now, container_id, self._output(container, now))
        self.event("Normal", "Started", f"Started container {container.name}", container.name)
        if self.behaviour.fault == "hang":
            self.after(f"hang {container.name}", self.behaviour.fault_after_seconds, self.hang)
        elif self.behaviour.fault == "oom":
            wait = self.behaviour.fault_after_seconds
            self.after(
                f"end {container.name}", wait, lambda: self.kill(container, KILLED, "OOMKilled")
            )
        else:
            self.after(
                f"end {container.name}", self.behaviour.run_seconds, lambda: self._exit(container)
            )
        self.host.publish(self)

    def _spec_of(self, container: Container) -> Json:
        listed = [*self.spec["containers"], *(self.spec.get("initContainers") or [])]
        found: Json = next(item for item in listed if item["name"] == container.name)
        return found

    def _new_address(self) -> str:
        machine = self.host.machine
        number = self._draw.randrange(2, 250)
        return f"10.{100 + machine.ordinal // 256 % 100}.{machine.ordinal % 256}.{number}"

    def _output(self, container: Container, now: float) -> Output:
        spec = self._spec_of(container)
        values = {v["name"]: v.get("value", "") for v in spec.get("env") or []}
        limits = (spec.get("resources") or {}).get("limits") or {}
        gpus = sum(int(v) for k, v in limits.items() if k.startswith("nvidia.com/") and v.isdigit())
        rank, world = values.get("RANK", "0"), values.get("WORLD_SIZE", "1")
        behaviour = self.behaviour
        return Output(
            self._draw.getrandbits(31), int(rank) if rank.isdigit() else 0,
            int(world) if world.isdigit() else 1, self.host.machine.name, gpus, now,
            behaviour.run_seconds, behaviour.log_lines, behaviour.exit_code,
        )  # fmt: skip

    # Ending.

    def hang(self) -> None:
        """From now on nothing moves: no log lines, idle GPUs, no end."""
        self.hung = True
        now = self.host.world.clock.now()
        for container in self.containers:
            self._cancel(f"end {container.name}")
            if container.output is not None:
                container.output.stopped_at = min(container.output.stopped_at, now)

    def _exit(self, container: Container) -> None:
        code = self.behaviour.exit_code
        container.end(self.host.world.clock.now(), code, "Completed" if code == 0 else "Error")
        self._ended(container)

    def kill(self, container: Container, exit_code: int, reason: str, message: str = "") -> None:
        """Ends a running container at once (out of memory, a fault, a person)."""
        if container.running:
            self._cancel(f"end {container.name}")
            container.end(self.host.world.clock.now(), exit_code, reason, message)
            self._ended(container)

    def _ended(self, container: Container) -> None:
        ended = container.ended
        failed = ended is not None and ended["exitCode"] != 0
        again = self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and failed)
        if again and not self.stopping:
            self._restart(container)
            return
        if all(item.ended is not None for item in self.containers):
            self._finish()
        else:
            self.host.publish(self)

    def _restart(self, container: Container) -> None:
        now = self.host.world.clock.now()
        name = f"restart {container.name}"
        if container.started_at and now - container.started_at > BACKOFF_RESET_SECONDS:
            self._backoff.forget(name)
        first = not self._backoff.known(name) and container.restarts == 0
        wait = 0.0 if first else self._backoff.next(name)
        self._backoff.touch(name)
        self.host.publish(self)
        if wait:
            self.event(
                "Warning", "BackOff",
                f"Back-off restarting failed container {container.name} in pod {self.key[1]}_"
                f"{self.key[0]}({self.uid})", container.name,
            )  # fmt: skip
            container.wait(
                "CrashLoopBackOff",
                f"back-off {wait:.0f}s restarting failed container={container.name} "
                f"pod={self.key[1]}_{self.key[0]}({self.uid})",
            )
            self.host.publish(self)
        self.after(name, wait + 0.1, lambda: self._start_again(container))

    def _start_again(self, container: Container) -> None:
        container.restarts += 1
        self._start(container)

    def _finish(self) -> None:
        self._cancel_all()
        self.done = True
        self.host.released(self)
        self.host.publish(self)
        if self.deleting:
            self.host.finish_deletion(self)

    def _deadline(self) -> None:
        self.reason = "DeadlineExceeded"
        self.message = "Pod was active on the node longer than the specified deadline"
        self.event("Normal", "DeadlineExceeded", self.message)
        self.failed_whole = True
        self.stop(float(self.spec.get("terminationGracePeriodSeconds", 30)))

    def evict(self, reason: str, message: str) -> None:
        """The kubelet ends the pod itself, as under memory pressure."""
        self.reason, self.message, self.failed_whole = reason, message, True
        self.extra_condition = {
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
            "lastTransitionTime": stamp(self.host.world.clock.now()),
            "reason": "TerminationByKubelet", "message": message,
        }  # fmt: skip
        self.event("Warning", reason, message)
        self.stop(0.0)

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM now, SIGKILL after the grace period; a shorter grace period later wins."""
        first = not self.stopping
        self.stopping = True
        for init in self.inits:
            if init.running:
                init.end(self.host.world.clock.now(), KILLED, "Error")
        for container in self.containers:
            if container.running:
                self._stop_container(container, grace_seconds, first=first)
            elif container.ended is None:
                container.end(
                    self.host.world.clock.now(), KILLED, "ContainerStatusUnknown", LOST_MESSAGE
                )
        if not self.done and all(item.ended is not None for item in self.containers):
            self._finish()

    def _stop_container(self, container: Container, grace: float, *, first: bool) -> None:
        behaviour, now = self.behaviour, self.host.world.clock.now()
        if first:
            self._cancel(f"end {container.name}")
            self.event("Normal", "Killing", f"Stopping container {container.name}", container.name)
            self._print_on_sigterm(container, now, grace)
        exits_itself = behaviour.on_sigterm != "ignore" and behaviour.sigterm_seconds <= grace
        if first and exits_itself and grace > 0:
            code = behaviour.sigterm_exit_code
            reason = "Completed" if code == 0 else "Error"
            self.after(
                f"exit {container.name}", behaviour.sigterm_seconds,
                lambda: self._stopped(container, code, reason),
            )  # fmt: skip
        self.after(
            f"kill {container.name}", grace, lambda: self._stopped(container, KILLED, "Error")
        )

    def _print_on_sigterm(self, container: Container, now: float, grace: float) -> None:
        output = container.output
        if output is None or grace <= 0:
            return
        output.stopped_at = now
        rank = f"rank={output.rank}"
        output.extra.append((now, f"{rank} received SIGTERM, {grace:.0f}s to stop"))
        if self.behaviour.on_sigterm == "checkpoint" and self.behaviour.sigterm_seconds <= grace:
            step = max(0, output.planned_until(now) - 1) * 10
            output.extra.append(
                (now + self.behaviour.sigterm_seconds, f"{rank} checkpoint saved step={step}")
            )

    def _stopped(self, container: Container, code: int, reason: str) -> None:
        if container.running:
            self._cancel(f"exit {container.name}")
            self._cancel(f"kill {container.name}")
            container.end(self.host.world.clock.now(), code, reason)
            self._ended(container)

    def vanish(self) -> None:
        """Everything stops without a word: the machine lost power or the pod was force-deleted."""
        self._cancel_all()
        now = self.host.world.clock.now()
        for container in self.containers:
            if container.output is not None:
                container.output.stopped_at = min(container.output.stopped_at, now)

    def lost(self) -> None:
        """After a reboot: containers that ran are found dead."""
        now = self.host.world.clock.now()
        for container in self.containers:
            if container.running:
                container.end(now, 255, "Unknown")
            elif container.ended is None:
                container.end(now, KILLED, "ContainerStatusUnknown", LOST_MESSAGE)
            self._ended(container)
