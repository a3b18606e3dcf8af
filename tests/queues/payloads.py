"""Jobs as people send them: good ones, and a table of bad ones, each with where the error must point."""

from typing import Any

GOOD: dict[str, Any] = {
    "name": "pretrain-7b",
    "tenant": "research",
    "queue": "train",
    "image": "registry.example/train:1",
    "gpus_per_replica": 8,
}
FULL: dict[str, Any] = GOOD | {
    "replicas": 8,
    "min_replicas": 8,
    "gpu_model": ["NVIDIA-H100-80GB-HBM3"],
    "sharing": "exclusive",
    "min_cuda": "12.4",
    "cpu_per_replica": "64",
    "memory_per_replica": "512Gi",
    "shared_memory_mib": 65536,
    "image_pull_secret": "regcred",
    "command": ["torchrun"],
    "args": ["train.py"],
    "working_dir": "/work",
    "env": {"LR": "3e-4"},
    "secret_env": {"WANDB_API_KEY": "wandb"},
    "volumes": [{"claim": "data", "mount_path": "/data", "read_only": True}],
    "preset": "infiniband",
    "node_selector": {},
    "exclude_nodes": [],
    "topology": {"level": "leaf", "mode": "required", "preferred_level": None, "slice": None},
    "tensor_parallel": 8,
    "priority": "normal",
    "preemptible": True,
    "on_preemption": "requeue",
    "max_runtime_seconds": 86400,
    "grace_seconds": 30,
    "checkpoint": {"interval_seconds": 1800, "grace_seconds": 120, "notice": "signal"},
    "max_restarts": 3,
    "stall_timeout_seconds": None,
    "on_stall": "restart",
    "begin_at": None,
    "depends_on": [],
    "external_id": "ci-4711",
    "labels": {},
    "annotations": {},
}
ROLES: dict[str, Any] = {
    key: value for key, value in GOOD.items() if key not in ("image", "gpus_per_replica")
} | {
    "roles": [
        {"name": "trainer", "replicas": 4, "gpus_per_replica": 8, "image": "train:1"},
        {"name": "reader", "replicas": 2, "gpus_per_replica": 0, "image": "read:1"},
    ],
    "decides": "trainer",
}


def without(*keys: str) -> dict[str, Any]:
    """GOOD, short of these keys."""
    return {key: value for key, value in GOOD.items() if key not in keys}


def role(**changes: Any) -> dict[str, Any]:
    """A job of one role in `roles[]`, changed."""
    changed = {"name": "w", "gpus_per_replica": 8, "image": "a:1"} | changes
    return {
        "name": "x",
        "tenant": "research",
        "queue": "train",
        "roles": [{key: value for key, value in changed.items() if value is not None}],
    }


# What is sent, where the error points, its code.
BAD: list[tuple[dict[str, Any], str, str]] = [
    # missing
    ({}, "/name", "required"),
    (without("name"), "/name", "required"),
    (without("tenant"), "/tenant", "required"),
    (without("queue"), "/queue", "required"),
    (without("image"), "/image", "required"),
    (without("gpus_per_replica"), "/gpus_per_replica", "required"),
    (GOOD | {"name": None}, "/name", "required"),
    (role(name=None), "/roles/0/name", "required"),
    (role(image=None), "/roles/0/image", "required"),
    (role(gpus_per_replica=None), "/roles/0/gpus_per_replica", "required"),
    (GOOD | {"checkpoint": {}}, "/checkpoint/interval_seconds", "required"),
    (GOOD | {"volumes": [{"claim": "a"}]}, "/volumes/0/mount_path", "required"),
    # wrong types
    (GOOD | {"name": 7}, "/name", "not_a_string"),
    (GOOD | {"tenant": 7}, "/tenant", "not_a_string"),
    (GOOD | {"queue": ["train"]}, "/queue", "not_a_string"),
    (GOOD | {"image": {"name": "x"}}, "/image", "not_a_string"),
    (GOOD | {"replicas": "8"}, "/replicas", "not_an_integer"),
    (GOOD | {"replicas": 1.5}, "/replicas", "not_an_integer"),
    (GOOD | {"replicas": True}, "/replicas", "not_an_integer"),
    (GOOD | {"gpus_per_replica": "8"}, "/gpus_per_replica", "not_an_integer"),
    (GOOD | {"command": "torchrun"}, "/command", "not_an_array"),
    (GOOD | {"args": [1]}, "/args/0", "not_a_string"),
    (GOOD | {"env": ["A=1"]}, "/env", "not_an_object"),
    (GOOD | {"env": {"LR": 3e-4}}, "/env/LR", "not_a_string"),
    (GOOD | {"volumes": {"claim": "x"}}, "/volumes", "not_an_array"),
    (GOOD | {"volumes": ["data"]}, "/volumes/0", "not_an_object"),
    (GOOD | {"preemptible": "yes"}, "/preemptible", "not_a_boolean"),
    (GOOD | {"topology": "leaf"}, "/topology", "not_an_object"),
    (GOOD | {"gpu_model": "H100"}, "/gpu_model", "not_an_array"),
    (GOOD | {"cpu_per_replica": True}, "/cpu_per_replica", "invalid_quantity"),
    (without("image", "gpus_per_replica") | {"roles": {}}, "/roles", "not_an_array"),
    # counts
    (GOOD | {"replicas": 0}, "/replicas", "too_small"),
    (GOOD | {"replicas": -1}, "/replicas", "too_small"),
    (GOOD | {"replicas": 10**30}, "/replicas", "too_large"),
    (GOOD | {"gpus_per_replica": 0}, "/gpus_per_replica", "too_small"),
    (GOOD | {"gpus_per_replica": -8}, "/gpus_per_replica", "too_small"),
    (GOOD | {"gpus_per_replica": 9}, "/gpus_per_replica", "too_large"),
    (role(gpus_per_replica=9), "/roles/0/gpus_per_replica", "too_large"),
    (role(gpus_per_replica=0), "/roles", "no_gpus"),
    (GOOD | {"replicas": 4, "min_replicas": 5}, "/min_replicas", "too_large"),
    (GOOD | {"min_replicas": 0}, "/min_replicas", "too_small"),
    (without("image", "gpus_per_replica") | {"roles": []}, "/roles", "too_few"),
    # tensor parallelism
    (GOOD | {"tensor_parallel": 16, "replicas": 2}, "/tensor_parallel", "invalid_tensor_parallel"),
    (GOOD | {"tensor_parallel": 3}, "/tensor_parallel", "invalid_tensor_parallel"),
    (
        GOOD | {"tensor_parallel": 8, "gpus_per_replica": 4, "replicas": 3},
        "/tensor_parallel",
        "invalid_tensor_parallel",
    ),
    (
        GOOD | {"tensor_parallel": 8, "gpus_per_replica": 4, "replicas": 4, "min_replicas": 3},
        "/tensor_parallel",
        "invalid_tensor_parallel",
    ),
    (GOOD | {"tensor_parallel": 0}, "/tensor_parallel", "too_small"),
    # names that are not known
    (GOOD | {"tenant": "nobody"}, "/tenant", "unknown_tenant"),
    (GOOD | {"tenant": "vision"}, "/tenant", "unknown_tenant"),
    (GOOD | {"queue": "nowhere"}, "/queue", "unknown_queue"),
    (GOOD | {"queue": "shut"}, "/queue", "queue_closed"),
    (GOOD | {"gpu_model": ["NVIDIA-B200"]}, "/gpu_model/0", "unknown_model"),
    (
        GOOD | {"topology": {"level": "rack", "mode": "required"}},
        "/topology/level",
        "unknown_level",
    ),
    (GOOD | {"preset": "nope"}, "/preset", "unknown_preset"),
    (GOOD | {"preset": "vision-only"}, "/preset", "unknown_preset"),
    (GOOD | {"secret_env": {"KEY": "nope"}}, "/secret_env/KEY", "unknown_secret"),
    (GOOD | {"secret_env": {"KEY": "regcred"}}, "/secret_env/KEY", "unknown_secret"),
    (GOOD | {"image_pull_secret": "wandb"}, "/image_pull_secret", "unknown_secret"),
    (GOOD | {"depends_on": [{"job": "job_nope"}]}, "/depends_on/0/job", "unknown_job"),
    (
        GOOD | {"depends_on": [{"external_id": "nope"}]},
        "/depends_on/0/external_id",
        "unknown_job",
    ),
    (ROLES | {"decides": "nobody"}, "/decides", "unknown_role"),
    (GOOD | {"replica": 3}, "/replica", "unknown_field"),
    (GOOD | {"topology": {"lvl": "leaf"}}, "/topology/lvl", "unknown_field"),
    (GOOD | {"a/b~c": 1}, "/a~1b~0c", "unknown_field"),
    # names that cannot be
    (GOOD | {"name": "🚀-run"}, "/name", "invalid_name"),
    (GOOD | {"name": "Pretrain"}, "/name", "invalid_name"),
    (GOOD | {"name": ""}, "/name", "empty"),
    (GOOD | {"name": "a" * 64}, "/name", "too_long"),
    (GOOD | {"name": "a\x00b"}, "/name", "invalid_character"),
    (GOOD | {"name": "\ud800"}, "/name", "invalid_character"),
    (GOOD | {"tenant": "\x00"}, "/tenant", "unknown_tenant"),
    (GOOD | {"queue": "\ud800"}, "/queue", "unknown_queue"),
    (role(name="Trainer"), "/roles/0/name", "invalid_name"),
    (GOOD | {"image": "not an image"}, "/image", "invalid_image"),
    (GOOD | {"image": "registry.example/UPPER/case"}, "/image", "invalid_image"),
    (GOOD | {"exclude_nodes": ["gpu_1!"]}, "/exclude_nodes/0", "invalid_name"),
    (GOOD | {"node_selector": {"a b": "c"}}, "/node_selector/a b", "invalid_key"),
    (GOOD | {"external_id": "a\nb"}, "/external_id", "invalid_text"),
    # environment
    (GOOD | {"env": {"A=B": "1"}}, "/env/A=B", "invalid_env_name"),
    (GOOD | {"env": {"1A": "1"}}, "/env/1A", "invalid_env_name"),
    (GOOD | {"env": {"": "1"}}, "/env/", "invalid_env_name"),
    (
        GOOD | {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
        "/env/NVIDIA_VISIBLE_DEVICES",
        "refused_env_name",
    ),
    (
        GOOD | {"env": {"NVIDIA_DRIVER_CAPABILITIES": "all"}},
        "/env/NVIDIA_DRIVER_CAPABILITIES",
        "refused_env_name",
    ),
    (
        GOOD | {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
        "/env/CUDA_VISIBLE_DEVICES",
        "refused_env_name",
    ),
    (
        GOOD | {"secret_env": {"CUDA_MPS_PIPE_DIRECTORY": "wandb"}},
        "/secret_env/CUDA_MPS_PIPE_DIRECTORY",
        "refused_env_name",
    ),
    (GOOD | {"env": {"MUSTER_TOKEN": "x"}}, "/env/MUSTER_TOKEN", "refused_env_name"),
    (GOOD | {"env": {"MASTER_ADDR": "x"}}, "/env/MASTER_ADDR", "refused_env_name"),
    (role(env={"RANK": "0"}), "/roles/0/env/RANK", "refused_env_name"),
    (
        GOOD | {"env": {"KEY": "1"}, "secret_env": {"KEY": "wandb"}},
        "/secret_env/KEY",
        "duplicate",
    ),
    # quantities and limits
    (GOOD | {"cpu_per_replica": "many"}, "/cpu_per_replica", "invalid_quantity"),
    (GOOD | {"cpu_per_replica": "-1"}, "/cpu_per_replica", "invalid_quantity"),
    (GOOD | {"cpu_per_replica": "0"}, "/cpu_per_replica", "out_of_range"),
    (GOOD | {"cpu_per_replica": "200"}, "/cpu_per_replica", "too_large"),
    (GOOD | {"memory_per_replica": "12Gb"}, "/memory_per_replica", "invalid_quantity"),
    (GOOD | {"memory_per_replica": "3Ti"}, "/memory_per_replica", "too_large"),
    (GOOD | {"memory_per_replica": "9e99Ei"}, "/memory_per_replica", "invalid_quantity"),
    (
        GOOD | {"memory_per_replica": "1Gi", "shared_memory_mib": 2048},
        "/shared_memory_mib",
        "too_large",
    ),
    (GOOD | {"max_runtime_seconds": 0}, "/max_runtime_seconds", "too_small"),
    (GOOD | {"queue": "short", "max_runtime_seconds": 7200}, "/max_runtime_seconds", "too_large"),
    (GOOD | {"grace_seconds": 999_999}, "/grace_seconds", "too_large"),
    (GOOD | {"stall_timeout_seconds": 1}, "/stall_timeout_seconds", "too_small"),
    (GOOD | {"on_stall": "panic"}, "/on_stall", "unknown_choice"),
    (
        GOOD | {"checkpoint": {"interval_seconds": 60, "notice": "shout"}},
        "/checkpoint/notice",
        "unknown_choice",
    ),
    (GOOD | {"on_preemption": "cry"}, "/on_preemption", "unknown_choice"),
    (GOOD | {"max_restarts": -1}, "/max_restarts", "too_small"),
    (GOOD | {"min_cuda": "twelve"}, "/min_cuda", "invalid_version"),
    (GOOD | {"sharing": "mig"}, "/sharing", "sharing_not_enabled"),
    # priority
    (GOOD | {"priority": "urgent"}, "/priority", "invalid_priority"),
    (GOOD | {"priority": 501}, "/priority", "out_of_range"),
    (GOOD | {"priority": "high"}, "/priority", "out_of_range"),
    (GOOD | {"priority": -1}, "/priority", "out_of_range"),
    (GOOD | {"priority": True}, "/priority", "invalid_priority"),
    # times
    (GOOD | {"begin_at": "2020-01-01T00:00:00Z"}, "/begin_at", "in_the_past"),
    (GOOD | {"begin_at": "2199-01-01T00:00:00Z"}, "/begin_at", "too_late"),
    (GOOD | {"begin_at": "tomorrow"}, "/begin_at", "not_a_time"),
    (GOOD | {"begin_at": "2027-01-01T00:00:00"}, "/begin_at", "not_a_time"),
    (GOOD | {"begin_at": "0001-01-01T00:00:00+23:00"}, "/begin_at", "not_a_time"),
    (GOOD | {"begin_at": 1}, "/begin_at", "not_a_time"),
    # topology
    (GOOD | {"topology": {"mode": "please"}}, "/topology/mode", "unknown_choice"),
    (
        GOOD | {"topology": {"level": "leaf", "preferred_level": "node"}},
        "/topology/preferred_level",
        "needs_required",
    ),
    (
        GOOD | {"topology": {"level": "leaf", "mode": "required", "preferred_level": "spine"}},
        "/topology/preferred_level",
        "not_narrower",
    ),
    (
        GOOD | {"replicas": 6, "topology": {"slice": {"replicas": 4, "level": "leaf"}}},
        "/topology/slice/replicas",
        "does_not_divide",
    ),
    (
        GOOD
        | {
            "replicas": 4,
            "topology": {
                "level": "leaf",
                "mode": "required",
                "slice": {"replicas": 2, "level": "spine"},
            },
        },
        "/topology/slice/level",
        "not_narrower",
    ),
    # volumes, paths, metadata
    (GOOD | {"working_dir": "work"}, "/working_dir", "invalid_path"),
    (
        GOOD | {"volumes": [{"claim": "d", "mount_path": "/a/../etc"}]},
        "/volumes/0/mount_path",
        "invalid_path",
    ),
    (
        GOOD | {"volumes": [{"claim": "d", "mount_path": "/dev/shm"}]},
        "/volumes/0/mount_path",
        "reserved_path",
    ),
    (
        GOOD | {"volumes": [{"claim": "D!", "mount_path": "/d"}]},
        "/volumes/0/claim",
        "invalid_name",
    ),
    (
        GOOD
        | {"volumes": [{"claim": "d", "mount_path": "/d"}, {"claim": "e", "mount_path": "/d/"}]},
        "/volumes/1/mount_path",
        "duplicate",
    ),
    (GOOD | {"labels": {"evil.example/x": "1"}}, "/labels/evil.example~1x", "prefix_not_allowed"),
    (GOOD | {"labels": {"muster.dev/job": "1"}}, "/labels/muster.dev~1job", "prefix_not_allowed"),
    (GOOD | {"labels": {"team": "ä"}}, "/labels/team", "invalid_label_value"),
    (
        GOOD | {"annotations": {"k8s.io/x": "1"}},
        "/annotations/k8s.io~1x",
        "prefix_not_allowed",
    ),
    # roles
    (ROLES | {"replicas": 2}, "/replicas", "not_with_roles"),
    (
        without("image", "gpus_per_replica")
        | {
            "roles": [
                {"name": "a", "gpus_per_replica": 1, "image": "a"},
                {"name": "a", "gpus_per_replica": 1, "image": "a"},
            ]
        },
        "/roles/1/name",
        "duplicate",
    ),
    # dependencies
    (
        GOOD | {"external_id": "me", "depends_on": [{"external_id": "me"}]},
        "/depends_on/0/external_id",
        "dependency_circle",
    ),
    (GOOD | {"depends_on": [{}]}, "/depends_on/0", "one_of"),
    (
        GOOD | {"depends_on": [{"job": "job_a", "external_id": "b"}]},
        "/depends_on/0",
        "one_of",
    ),
    (
        GOOD | {"depends_on": [{"external_id": "stored", "on": "failed"}]},
        "/depends_on/0/on",
        "unknown_choice",
    ),
]
