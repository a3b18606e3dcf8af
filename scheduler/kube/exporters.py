"""Where the DCGM exporters of a cluster are, as its API tells: the pods of the usual charts.

Called by the `health` process.
"""

from collections.abc import Mapping
from typing import Any

from scheduler.kube.connection import Connection

# The GPU operator's and the exporter's own chart.
SELECTORS = (
    "app in (nvidia-dcgm-exporter,dcgm-exporter)",
    "app.kubernetes.io/name=dcgm-exporter",
)
PORT = 9400


async def exporter_addresses(connection: Connection) -> dict[str, str]:
    """`host:port` of each node's running exporter, by node name. Raises KubeError."""
    found: dict[str, str] = {}
    for selector in SELECTORS:
        listed = await connection.get("/api/v1/pods", {"labelSelector": selector})
        for pod in listed.get("items") or []:
            node, address = _address_of(pod)
            if node and address:
                found.setdefault(node, address)
    return found


def _address_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    status = pod.get("status") or {}
    if status.get("phase") != "Running" or not status.get("podIP"):
        return "", ""
    ip = str(status["podIP"])
    host = f"[{ip}]" if ":" in ip else ip
    return str((pod.get("spec") or {}).get("nodeName") or ""), f"{host}:{_port_of(pod)}"


def _port_of(pod: Mapping[str, Any]) -> int:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("name") == "metrics" or port.get("containerPort") == PORT:
                return int(port["containerPort"])
    return PORT


def proxy_path(node: str, port: int = PORT) -> str:
    """The exporter's page through the API server; works where it listens on the node itself."""
    return f"/api/v1/nodes/{node}:{port}/proxy/metrics"
