"""A small client of the REST API for tests: what a script of a user would write."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx

H100 = "NVIDIA-H100-80GB-HBM3"
ACTIVE = {"placed", "starting", "running", "stopping"}


@dataclass(slots=True)
class Api:
    """One person's view. Every method answers parsed JSON and fails on an unexpected status."""

    url: str
    token: str
    _client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self._client = httpx.Client(
            base_url=f"{self.url}/api/v1/",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=90,
            transport=httpx.HTTPTransport(retries=3),
        )

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, whatever it answers."""
        return self._client.request(method, path, **options)

    def ready(self) -> bool:
        """Whether the web process can serve."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def get(self, path: str, **query: Any) -> Any:
        """GET that must succeed."""
        answer = self.call("GET", path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, **fields: Any) -> dict[str, Any]:
        """POST jobs/ that must be accepted."""
        answer = self.call("POST", "jobs/", json=job(**fields))
        assert answer.status_code == 201, f"{answer.status_code} {answer.text}"
        made: dict[str, Any] = answer.json()
        return made

    def submit_many(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """POST jobs/batch/, every member of which must be accepted."""
        answer = self.call("POST", "jobs/batch/", json={"jobs": jobs})
        assert answer.status_code == 200, answer.text
        results = answer.json()["results"]
        assert all(r["status"] == 201 for r in results), results
        return [r["job"] for r in results]

    def job(self, job_id: str) -> dict[str, Any]:
        """The job's answer now."""
        found: dict[str, Any] = self.get(f"jobs/{job_id}/")
        return found

    def until(self, job_id: str, until: str, within_seconds: float) -> dict[str, Any]:
        """Long-poll until running or finished. Fails with the job's answer at the time-out."""
        deadline = time.monotonic() + within_seconds
        while True:
            left = deadline - time.monotonic()
            wait = max(1, min(60, int(left)))
            found: dict[str, Any] = self.get(f"jobs/{job_id}/", wait=wait, until=until)
            if found["phase"] == until or found["phase"] == "finished":
                return found
            assert left > 0, f"{job_id} is not {until} within {within_seconds} s: {found}"

    def until_all_finished(self, job_ids: list[str], within_seconds: float) -> list[dict[str, Any]]:
        """Wait for each in turn, against one deadline."""
        deadline = time.monotonic() + within_seconds
        return [
            self.until(job_id, "finished", max(1.0, deadline - time.monotonic()))
            for job_id in job_ids
        ]


def job(**fields: Any) -> dict[str, Any]:
    """A job as sent: eight GPUs a replica for ravi's team unless said otherwise; `run_seconds`,
    `exit_code` and `log_lines` become the annotations that simulated pods obey."""
    annotations = {
        f"sim.muster.dev/{name.replace('_', '-')}": str(fields.pop(name))
        for name in ("run_seconds", "exit_code", "log_lines")
        if name in fields
    }
    rest: dict[str, Any] = {
        "name": "pretrain",
        "tenant": "research",
        "queue": "train",
        "image": "registry.example/train:1",
        "gpus_per_replica": 8,
        "cpu_per_replica": "16",
        "memory_per_replica": "64Gi",
        "gpu_model": [H100],
        "max_runtime_seconds": 3600,
    }
    return rest | fields | ({"annotations": annotations} if annotations else {})
