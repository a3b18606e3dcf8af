"""Image pulls of one pod: how long they take, how they fail, and the back-off between tries."""

from collections.abc import Callable
from typing import Any, Protocol

from scheduler.simcluster.kubelet.behaviour import Behaviour
from scheduler.simcluster.kubelet.containers import Container
from scheduler.simcluster.kubelet.references import missing_pull_secrets
from scheduler.simcluster.nodes.machine import Machine
from scheduler.simcluster.store.store import Store

Json = dict[str, Any]
BACKOFF_START_SECONDS = 10.0
BACKOFF_MAX_SECONDS = 300.0
PRIVATE_PREFIX = "private."
"""Images of registries whose name begins so are refused without an existing pull secret."""
_CODES = {
    "not found": "NotFound",
    "401": "Unknown",
    "429": "Unknown",
    "timeout": "DeadlineExceeded",
}


class Backoff:
    """Waiting times that double from 10 s to 5 min, by name."""

    def __init__(self) -> None:
        self._waits: dict[str, float] = {}

    def next(self, name: str) -> float:
        """The next wait of a name, in seconds."""
        wait = self._waits.get(name, BACKOFF_START_SECONDS / 2) * 2
        self._waits[name] = min(wait, BACKOFF_MAX_SECONDS)
        return self._waits[name]

    def known(self, name: str) -> bool:
        """Whether a name has waited before."""
        return name in self._waits

    def touch(self, name: str) -> None:
        """From now on a name counts as known; its first wait is the shortest."""
        self._waits.setdefault(name, BACKOFF_START_SECONDS / 2)

    def forget(self, name: str) -> None:
        """Starts over."""
        self._waits.pop(name, None)


class PullingPod(Protocol):
    """What pulls need of the pod's run."""

    spec: Json
    key: tuple[str, str]
    behaviour: Behaviour
    stopping: bool

    @property
    def machine(self) -> Machine:
        """The machine that pulls."""

    @property
    def store(self) -> Store:
        """Where pull secrets are."""

    def event(self, type_: str, reason: str, message: str, container: str = "") -> None:
        """Writes an event."""

    def wait(self, container: Container, reason: str, message: str) -> None:
        """Shows a container as waiting."""

    def after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Sets a named timer."""


class Pulls:
    """The pulls of one pod."""

    def __init__(self, pod: PullingPod) -> None:
        self._pod = pod
        self._backoff = Backoff()
        self._failed = 0

    def begin(self, container: Container, then: Callable[[], None]) -> None:
        """Pulls a container's image, again and again if need be, then goes on."""
        pod = self._pod
        if pod.stopping:
            return
        image = container.image
        if pod.behaviour.fault == "image-name" or " " in image:
            message = (
                f'Failed to apply default image tag "{image}": couldn\'t parse image name: '
                "invalid reference format"
            )
            pod.event("Warning", "InspectFailed", message, container.name)
            pod.wait(container, "InvalidImageName", message)
            return
        missing = missing_pull_secrets(pod.store, pod.key[0], pod.spec)
        if missing:
            pod.event(
                "Warning", "FailedToRetrieveImagePullSecret",
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); attempting to "
                "pull the image may not succeed.",
            )  # fmt: skip
        pod.event("Normal", "Pulling", f'Pulling image "{image}"', container.name)
        seconds = pod.behaviour.pull_seconds * pod.machine.pull_factor
        pod.after(f"pull {container.name}", seconds, lambda: self._pulled(container, then))

    def _pulled(self, container: Container, then: Callable[[], None]) -> None:
        problem = self._problem(container)
        if problem:
            self._fail(container, problem, then)
            return
        milliseconds = self._pod.behaviour.pull_seconds * self._pod.machine.pull_factor * 1000
        text = f'Successfully pulled image "{container.image}" in {milliseconds:.0f}ms'
        self._pod.event("Normal", "Pulled", text, container.name)
        then()

    def _problem(self, container: Container) -> str:
        pod, image = self._pod, container.image
        text = pod.machine.pull_problem
        if not text and image.startswith(PRIVATE_PREFIX) and not self._has_secrets():
            text = (
                "pull access denied, repository does not exist or may require authorization: "
                "401 Unauthorized"
            )
        if not text and self._failed < pod.behaviour.pull_failures:
            self._failed += 1
            text = f"{image}: {pod.behaviour.pull_error or 'not found'}"
        if not text:
            return ""
        code = next((code for mark, code in _CODES.items() if mark in text), "Unknown")
        return (
            f'rpc error: code = {code} desc = failed to pull and unpack image "{image}": failed to '
            f'resolve reference "{image}": {text}'
        )

    def _has_secrets(self) -> bool:
        spec = self._pod.spec
        missing = missing_pull_secrets(self._pod.store, self._pod.key[0], spec)
        return bool(spec.get("imagePullSecrets")) and not missing

    def _fail(self, container: Container, problem: str, then: Callable[[], None]) -> None:
        pod, name = self._pod, f"pull {container.name}"
        text = f'Failed to pull image "{container.image}": {problem}'
        pod.event("Warning", "Failed", text, container.name)
        pod.event("Warning", "Failed", "Error: ErrImagePull", container.name)
        pod.wait(container, "ErrImagePull", problem)
        seconds = self._backoff.next(name)
        pod.after(f"{name} wait", 1.0, lambda: self._back_off(container, problem))
        pod.after(name, seconds, lambda: self.begin(container, then))

    def _back_off(self, container: Container, problem: str) -> None:
        pod = self._pod
        text = f'Back-off pulling image "{container.image}"'
        pod.event("Normal", "BackOff", text, container.name)
        pod.event("Warning", "Failed", "Error: ImagePullBackOff", container.name)
        pod.wait(container, "ImagePullBackOff", f"{text}: ErrImagePull: {problem}")
