"""Submissions that must be refused, each with the field that is wrong. Used over HTTP and by the API's own tests."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.api import job


@dataclass(frozen=True, slots=True)
class Malformed:
    """body: what is sent. pointer: the JSON Pointer an error must bear ("" where the body itself is wrong)."""

    title: str
    body: Any
    pointer: str
    status: int = 422
    codes: frozenset[str] = field(default_factory=frozenset)


def without(*names: str) -> dict[str, Any]:
    """A good job that lacks some fields."""
    return {key: value for key, value in job().items() if key not in names}


YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).isoformat()

MALFORMED = [
    Malformed("no name", without("name"), "/name"),
    Malformed("no tenant", without("tenant"), "/tenant"),
    Malformed("no queue", without("queue"), "/queue"),
    Malformed("no image", without("image"), "/image"),
    Malformed("no GPUs", without("gpus_per_replica"), "/gpus_per_replica"),
    Malformed("name is a number", job(name=7), "/name"),
    Malformed("name is empty", job(name=""), "/name"),
    Malformed("name is an emoji", job(name="🚀🚀"), "/name"),
    Malformed("name has a slash", job(name="a/b"), "/name"),
    Malformed("name is too long", job(name="a" * 300), "/name"),
    Malformed("zero replicas", job(replicas=0), "/replicas"),
    Malformed("negative replicas", job(replicas=-3), "/replicas"),
    Malformed("replicas is a word", job(replicas="eight"), "/replicas"),
    Malformed("replicas is a fraction", job(replicas=1.5), "/replicas"),
    Malformed("replicas is true", job(replicas=True), "/replicas"),
    Malformed("zero GPUs", job(gpus_per_replica=0), "/gpus_per_replica"),
    Malformed("nine GPUs a replica", job(gpus_per_replica=9), "/gpus_per_replica"),
    Malformed("more at least than in all", job(replicas=2, min_replicas=3), "/min_replicas"),
    Malformed("tensor parallel 16", job(replicas=4, tensor_parallel=16), "/tensor_parallel"),
    Malformed("tensor parallel 3", job(tensor_parallel=3), "/tensor_parallel"),
    Malformed("unknown queue", job(queue="nowhere"), "/queue"),
    Malformed("unknown tenant", job(tenant="nobody"), "/tenant"),
    Malformed("a tenant of others", job(tenant="vision"), "/tenant"),
    Malformed("unknown level", job(topology={"level": "moon", "mode": "required"}), "/topology/level"),
    Malformed("unknown mode", job(topology={"level": "leaf", "mode": "maybe"}), "/topology/mode"),
    Malformed("unknown model", job(gpu_model=["NVIDIA-Z9"]), "/gpu_model"),
    Malformed("unknown preset", job(preset="warp"), "/preset"),
    Malformed("sharing that is not built", job(sharing="mig"), "/sharing"),
    Malformed("broken CPU", job(cpu_per_replica="many"), "/cpu_per_replica"),
    Malformed("negative memory", job(memory_per_replica="-1Gi"), "/memory_per_replica"),
    Malformed("image with a blank", job(image="my image"), "/image"),
    Malformed("command is a string", job(command="torchrun"), "/command"),
    Malformed("environment name with =", job(env={"A=B": "1"}), "/env/A=B"),
    Malformed("a refused variable", job(env={"NVIDIA_VISIBLE_DEVICES": "all"}), "/env/NVIDIA_VISIBLE_DEVICES"),
    Malformed("a variable that is ours", job(env={"CUDA_VISIBLE_DEVICES": "0"}), "/env/CUDA_VISIBLE_DEVICES"),
    Malformed("an unknown secret", job(secret_env={"KEY": "nosuch"}), "/secret_env/KEY"),
    Malformed("begins yesterday", job(begin_at=YESTERDAY), "/begin_at"),
    Malformed("begins in words", job(begin_at="tomorrow"), "/begin_at"),
    Malformed("no time at all", job(max_runtime_seconds=0), "/max_runtime_seconds"),
    Malformed("priority beyond the scale", job(priority=2000), "/priority"),
    Malformed("priority of no class", job(priority="royal"), "/priority"),
    Malformed("depends on what is not", job(depends_on=[{"job": "job_NOSUCH", "on": "finished"}]), "/depends_on/0"),
    Malformed("label of a foreign prefix", job(labels={"kubernetes.io/x": "1"}), "/labels"),
    Malformed("an unknown field", job(gpus=8), "/gpus"),
    Malformed("roles beside replicas", job(roles=[{"name": "main"}]), "/roles"),
    Malformed("a list", [job()], ""),
    Malformed("null", None, ""),
]  # fmt: skip
