"""One container of a pod on a kubelet: its states, as `containerStatuses` shows them."""

from dataclasses import dataclass, field
from typing import Any

from scheduler.simcluster.clock import stamp
from scheduler.simcluster.kubelet.output import Output

Json = dict[str, Any]


@dataclass(slots=True, eq=False)
class Container:
    """A container: waiting, running or ended, and how often it was started again."""

    name: str
    image: str
    id: str = ""
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Json = field(default_factory=dict)
    restarts: int = 0
    started_at: float = 0.0
    output: Output | None = None
    previous_output: Output | None = None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return "running" in self.state

    @property
    def ended(self) -> Json | None:
        """The terminated state, or None."""
        found: Json | None = self.state.get("terminated")
        return found

    def wait(self, reason: str, message: str = "") -> None:
        """Waits for a reason; what it was before becomes the last state if it had ended."""
        if self.ended is not None:
            self.last_state = {"terminated": self.ended}
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def start(self, now: float, container_id: str, output: Output) -> None:
        """Runs from now."""
        if self.ended is not None:
            self.last_state = {"terminated": self.ended}
        if self.output is not None:
            self.previous_output = self.output
        self.id, self.started_at, self.output = container_id, now, output
        self.state = {"running": {"startedAt": stamp(now)}}

    def end(self, now: float, exit_code: int, reason: str, message: str = "") -> None:
        """Has ended."""
        ended: Json = {"exitCode": exit_code, "reason": reason}
        if message:
            ended["message"] = message
        ended |= {
            "startedAt": stamp(self.started_at) if self.started_at else None,
            "finishedAt": stamp(now) if self.started_at else None,
        }
        if self.id:
            ended["containerID"] = self.id
        self.state = {"terminated": ended}
        if self.output is not None:
            self.output.stopped_at = min(self.output.stopped_at, now)

    def status(self) -> Json:
        """As an entry of `containerStatuses`."""
        shown: Json = {
            "name": self.name, "state": self.state, "lastState": self.last_state,
            "ready": self.running, "restartCount": self.restarts, "image": self.image,
            "imageID": f"{self.image.partition('@')[0]}@sha256:{abs(hash_of(self.image)):064x}"
            if self.id else "",
        }  # fmt: skip
        if self.id:
            shown["containerID"] = self.id
        shown["started"] = self.running
        return shown


def hash_of(text: str) -> int:
    """A number that stands for an image; the same in every process."""
    value = 0
    for letter in text:
        value = (value * 131 + ord(letter)) % (1 << 256)
    return value
