"""Namespaces mirror quotas, and pods get the secrets that their job names, no others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from queues.models import Preset, Queue, Quota
from queues.services.attempts import token_of
from scheduler.reconcile.describe import Gang, Seat, gang_manifests, preset_of
from scheduler.reconcile.tenants import (
    FlavorCeiling,
    MissingSecretError,
    ceilings,
    namespaces_wanted,
    pull_secret,
    secret_environment,
)
from tenants import vault
from tenants.models import Secret, Tenant
from tests import factories

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("quotas", "in_cohort", "expected"),
    [
        ([FlavorCeiling(GPU, 256, 64)], True, {GPU: 640}),
        ([FlavorCeiling(GPU, 256, None)], False, {GPU: 512}),
        ([FlavorCeiling(GPU, 256, None)], True, {}),
        ([FlavorCeiling(GPU, 256, 64)], False, {GPU: 512}),
        # Two models under one resource name share one key; one unlimited flavor lifts it.
        ([FlavorCeiling(GPU, 256, 0), FlavorCeiling(GPU, 32, 0)], True, {GPU: 576}),
        ([FlavorCeiling(GPU, 256, 0), FlavorCeiling(GPU, 32, None)], True, {}),
        ([], True, {}),
    ],
)
def test_ceiling_is_what_a_tenant_can_ever_reach_and_one_largest_gang(
    quotas: list[FlavorCeiling], in_cohort: bool, expected: dict[str, int]
) -> None:
    assert ceilings(quotas, in_cohort=in_cohort) == expected


@pytest.fixture
def queue(db: None) -> Queue:
    return factories.make_queue(factories.make_tenant("research"), nominal=64)


def test_every_tenant_with_a_queue_has_a_namespace(queue: Queue) -> None:
    factories.make_tenant("idle")
    wanted = namespaces_wanted(queue.cluster)
    assert set(wanted) == {"muster-research"}
    mirror = wanted["muster-research"]
    assert mirror.quota == {GPU: 128}
    assert (mirror.security, mirror.devices) == ("restricted", (GPU,))
    Quota.objects.update(nominal=128)
    assert namespaces_wanted(queue.cluster)["muster-research"].quota == {GPU: 256}


def test_namespace_allows_what_its_loosest_preset_needs(queue: Queue) -> None:
    for name, spec in (("plain", {}), ("infiniband", {"pod_security": "privileged"})):
        queue.presets.add(Preset.objects.create(name=name, spec=spec))
    assert namespaces_wanted(queue.cluster)["muster-research"].security == "privileged"


def make_secret(tenant: Tenant, name: str, value: str, kind: str = "opaque") -> None:
    Secret.objects.create(
        tenant=tenant,
        name=name,
        kind=kind,
        encrypted_value=vault.encrypt(value.encode()),
        created_at=NOW,
        changed_at=NOW,
    )


def test_pods_get_the_named_secrets_and_the_attempts_token(queue: Queue) -> None:
    make_secret(queue.tenant, "wandb", "s3cret")
    make_secret(queue.tenant, "other", "not asked for")
    make_secret(factories.make_tenant("vision"), "wandb", "of another tenant")
    job = factories.make_job(queue, factories.make_user("ravi"), secret_env={"KEY": "wandb"})
    assert secret_environment(job, 2) == {
        "KEY": "s3cret",
        "MUSTER_TOKEN": token_of(job.pk, 2),
    }


def test_missing_secret_is_named(queue: Queue) -> None:
    user = factories.make_user("ravi")
    with pytest.raises(MissingSecretError, match="'gone'"):
        secret_environment(factories.make_job(queue, user, secret_env={"KEY": "gone"}), 1)
    with pytest.raises(MissingSecretError, match="'regcred'"):
        pull_secret(factories.make_job(queue, user, image_pull_secret="regcred"))


def test_pull_secret_bears_the_tenants_name_for_it(queue: Queue) -> None:
    make_secret(queue.tenant, "regcred", '{"auths": {}}', "dockerconfigjson")
    job = factories.make_job(queue, factories.make_user("ravi"), image_pull_secret="regcred")
    made = pull_secret(job)
    assert made is not None
    assert made["metadata"]["name"] == "regcred"
    assert made["metadata"]["namespace"] == "muster-research"
    assert pull_secret(factories.make_job(queue, factories.make_user("ravi"))) is None


def test_gang_is_described_from_its_rows(queue: Queue) -> None:
    preset = Preset.objects.create(
        name="infiniband",
        spec={
            "resources": {"rdma/hca": 1},
            "capabilities": ["IPC_LOCK"],
            "env": {"NCCL_IB_HCA": "mlx5"},
            "volume_mounts": [{"name": "x", "mountPath": "/x"}],
            "pod_security": "privileged",
        },
    )
    job = factories.make_job(
        queue,
        factories.make_user("ravi"),
        replicas=2,
        max_runtime_seconds=3600,
        env={"LR": "1", "BATCH": "8"},
        volumes=[{"claim": "data", "mount_path": "/data", "read_only": True}],
        preset=preset,
        checkpoint_notice="file",
        annotations={"sim.muster.dev/run-seconds": "5"},
    )
    role = job.roles.get()
    role.env = {"LR": "2"}
    seats = [Seat("main", 0, 1, "n0"), Seat("main", 1, 0, "n1", creation=2)]
    first, second = gang_manifests(Gang(job, [role], 1, GPU, seats, "http://muster"))
    env = {e["name"]: e.get("value") for e in first["spec"]["containers"][0]["env"]}
    assert (env["LR"], env["BATCH"], env["NCCL_IB_HCA"]) == ("2", "8", "mlx5")
    assert env["MASTER_ADDR"].startswith("main-1."), "rank 0 is replica 1 here"
    assert (env["RANK"], env["WORLD_SIZE"]) == ("1", "2")
    assert env["MUSTER_TOKEN"] is None, "its value comes from the Secret"
    assert second["metadata"]["name"] == f"{job.job8}-1-main-1-2"
    assert first["metadata"]["annotations"]["muster.dev/user"] == "ravi"
    assert first["metadata"]["annotations"]["sim.muster.dev/run-seconds"] == "5"
    limits = first["spec"]["containers"][0]["resources"]["limits"]
    assert limits["rdma/hca"] == "1"
    assert {v["name"] for v in first["spec"]["volumes"]} == {"shared-memory", "notice", "claim-0"}


def test_preset_is_restricted_unless_it_says_more() -> None:
    assert not preset_of({}).run_as_root
    assert preset_of({"pod_security": "baseline"}).run_as_root
