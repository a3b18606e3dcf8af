"""Where a demo lives: its folder, ports, keys, and the environment that its processes get."""

import base64
import json
import os
import random
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
CLUSTER = "demo"


class PortTakenError(RuntimeError):
    """Somebody else listens on the port that the demo was asked to use."""


@dataclass(frozen=True, slots=True)
class Place:
    """var: folder with all state. Ports are on loopback. with_load: whether the story runs."""

    var: Path
    port: int
    whatif_port: int
    kubernetes_port: int
    with_load: bool

    @property
    def url(self) -> str:
        """What a person opens."""
        return f"http://{HOST}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """How the simulated cluster is reached."""
        return self.var / "kubeconfig"

    @property
    def announcement(self) -> Path:
        """Written when the demo is ready, gone when it is not."""
        return self.var / "demo.json"

    @property
    def logs(self) -> Path:
        """What the processes say, a file each."""
        return self.var / "process-logs"


def place_from(environment: Mapping[str, str], root: Path) -> Place:
    """Read PORT, VAR and DEMO_LOAD. Raises PortTakenError where PORT is in use."""
    port = int(environment.get("PORT") or 8000)
    if port and not is_free(port):
        raise PortTakenError(f"Port {port} is in use. Choose another: make demo PORT=8080")
    return Place(
        var=Path(environment.get("VAR") or root / "var").resolve(),
        port=port or free_port(),
        whatif_port=free_port(),
        kubernetes_port=free_port(),
        with_load=environment.get("DEMO_LOAD", "1").strip().lower() not in {"0", "no", "false"},
    )


def environment_of(place: Place) -> dict[str, str]:
    """What every process of the demo needs; anything that points at a real installation is overridden."""
    keys = stored_keys(place.var)
    return {
        "VAR": str(place.var),
        "DATABASE_URL": f"sqlite:///{place.var / 'muster.sqlite3'}",
        "CELERY_BROKER_URL": "filesystem://",
        "KUBECONFIG": str(place.kubeconfig),
        "LOG_STORE": str(place.var / "logs"),
        "PUBLIC_URL": place.url,
        "ALLOWED_HOSTS": f"{HOST},localhost,[::1]",
        "WHATIF_URL": f"http://{HOST}:{place.whatif_port}",
        "HASHED_STATIC": "1",
        **keys,
    }


def stored_keys(var: Path) -> dict[str, str]:
    """Keys made once and kept, so that sessions, secrets and the kubeconfig survive a restart."""
    file = var / "keys.json"
    if file.exists():
        found: dict[str, str] = json.loads(file.read_text())
        return found
    made = {
        "SECRET_KEY": secrets.token_urlsafe(48),
        "FIELD_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "KUBERNETES_TOKEN": secrets.token_urlsafe(24),
    }
    write_private(file, json.dumps(made))
    return made


def write_private(file: Path, text: str) -> None:
    """Write a file whole or not at all, readable by its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    fresh.replace(file)


def is_free(port: int) -> bool:
    """Whether nobody listens on the loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free loopback port below the range from which outgoing connections are served."""
    candidates = random.SystemRandom().sample(range(20_000, 32_000), 200)
    return next(port for port in candidates if is_free(port))
