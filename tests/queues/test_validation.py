"""The whole job contract where jobs enter: what is right is read in full, what is wrong names its field."""

from typing import Any

import pytest

from controlplane.common.errors import ForbiddenError, InvalidError
from queues.models import Job
from queues.services.validation import validate_batch, validate_job
from queues.specs import CheckpointSpec, SliceSpec, TopologySpec, VolumeSpec
from tenants.models import Tenant, TenantRole, User
from tests.factories import (
    A100,
    NOW,
    actor_of,
    make_cluster,
    make_flavor,
    make_job,
    make_member,
    make_queue,
)
from tests.queues.payloads import BAD, FULL, GOOD, ROLES, role

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def faults(user: User, payload: dict[str, Any]) -> list[tuple[str, str]]:
    """(pointer, code) of each error."""
    with pytest.raises(InvalidError) as caught:
        validate_job(actor_of(user), payload, NOW)
    return [(error.pointer, error.code) for error in caught.value.errors]


def test_the_table_of_malformed_jobs_names_each_field(shop: Tenant, ravi: User) -> None:
    assert len(BAD) >= 40
    wrong = [
        (payload, expected, found)
        for payload, *expected in BAD
        if tuple(expected) not in (found := faults(ravi, payload))
    ]
    assert wrong == []
    assert Job.objects.count() == 1  # the one that was there


def test_each_fault_of_one_field_is_the_only_error(shop: Tenant, ravi: User) -> None:
    """A wrong value must not draw errors elsewhere: people would look in the wrong place."""
    noisy = [
        (payload, found)
        for payload, _pointer, _code in BAD
        if payload and len(found := faults(ravi, payload)) > 1
    ]
    assert noisy == []


def test_all_errors_come_at_once(shop: Tenant, ravi: User) -> None:
    payload = {"name": "🚀", "tenant": "research", "queue": "train", "replicas": 0, "typo": 1}
    assert {pointer for pointer, _code in faults(ravi, payload)} == {
        "/name",
        "/replicas",
        "/typo",
        "/image",
        "/gpus_per_replica",
    }


def test_messages_say_what_would_be_right(shop: Tenant, ravi: User) -> None:
    for payload, words in (
        (GOOD | {"gpus_per_replica": 9}, ["at most 8", "h100"]),
        (GOOD | {"queue": "nowhere"}, ["train", "short"]),
        (GOOD | {"topology": {"level": "rack"}}, ["spine", "leaf", "node"]),
        (GOOD | {"gpu_model": ["x"]}, ["NVIDIA-H100-80GB-HBM3"]),
        (GOOD | {"repicas": 3}, ["replicas"]),
        (GOOD | {"priority": 900}, ["500"]),
    ):
        with pytest.raises(InvalidError) as caught:
            validate_job(actor_of(ravi), payload, NOW)
        assert all(word in caught.value.errors[0].message for word in words), payload


def test_a_minimal_job_gets_every_default_and_says_where_it_came_from(
    shop: Tenant, ravi: User
) -> None:
    spec = validate_job(actor_of(ravi), GOOD, NOW)
    (main,) = spec.roles
    assert (main.name, main.replicas, main.min_replicas, main.tensor_parallel) == ("main", 1, 1, 1)
    assert main.topology == TopologySpec(level="leaf", mode="preferred")
    assert (main.cpu_millis_per_replica, main.memory_mib_per_replica) == (64_000, 524_288)
    assert (spec.priority, spec.decides, spec.flavors) == (500, "main", ("h100",))
    assert spec.defaults["/topology"] == "cluster"
    assert spec.defaults["/cpu_per_replica"] == "flavor"
    assert spec.defaults["/max_runtime_seconds"] == "queue"


def test_the_contracts_own_example_is_read_in_full(shop: Tenant, ravi: User) -> None:
    spec = validate_job(actor_of(ravi), FULL, NOW)
    (main,) = spec.roles
    assert main.topology == TopologySpec(level="leaf", mode="required")
    assert (main.cpu_millis_per_replica, main.memory_mib_per_replica) == (64_000, 524_288)
    assert (main.replicas, main.tensor_parallel, spec.gpus) == (8, 8, 64)
    assert spec.checkpoint == CheckpointSpec(1800, 120, "signal")
    assert spec.volumes == (VolumeSpec("data", "/data", read_only=True),)
    assert spec.secret_env == {"WANDB_API_KEY": "wandb"}
    assert (spec.priority, spec.max_runtime_seconds, spec.external_id) == (500, 86400, "ci-4711")
    assert spec.preset == "infiniband"


def test_roles_stand_in_place_of_the_per_replica_fields(shop: Tenant, ravi: User) -> None:
    spec = validate_job(actor_of(ravi), ROLES, NOW)
    assert [(r.name, r.replicas, r.gpus_per_replica) for r in spec.roles] == [
        ("trainer", 4, 8),
        ("reader", 2, 0),
    ]
    assert spec.decides == "trainer"


def test_a_slice_is_read(shop: Tenant, ravi: User) -> None:
    topology = {"level": "spine", "mode": "required", "slice": {"replicas": 4, "level": "leaf"}}
    spec = validate_job(actor_of(ravi), GOOD | {"replicas": 8, "topology": topology}, NOW)
    assert spec.roles[0].topology.slice == SliceSpec(4, "leaf")


@pytest.mark.parametrize(
    ("gpus", "replicas", "tensor_parallel"), [(8, 1, 8), (8, 1, 2), (4, 2, 8), (1, 8, 8), (1, 1, 1)]
)
def test_tensor_parallel_groups_that_fit_an_nvlink_domain_pass(
    shop: Tenant, ravi: User, gpus: int, replicas: int, tensor_parallel: int
) -> None:
    payload = GOOD | {
        "gpus_per_replica": gpus,
        "replicas": replicas,
        "tensor_parallel": tensor_parallel,
    }
    assert validate_job(actor_of(ravi), payload, NOW).roles[0].tensor_parallel == tensor_parallel


def test_gpu_models_are_tried_in_the_jobs_order(research: Tenant, ravi: User) -> None:
    cluster = make_cluster()
    flavors = [make_flavor(cluster), make_flavor(cluster, "a100", A100, gpus_per_node=4)]
    make_queue(research, "mixed", flavors)
    payload = GOOD | {"queue": "mixed"}
    assert validate_job(actor_of(ravi), payload, NOW).flavors == ("h100", "a100")
    chosen = payload | {"gpu_model": [A100], "gpus_per_replica": 4}
    assert validate_job(actor_of(ravi), chosen, NOW).flavors == ("a100",)
    assert faults(ravi, payload | {"gpu_model": [A100]}) == [("/gpus_per_replica", "too_large")]


def test_sizes_are_not_checked_before_a_node_was_seen(research: Tenant, ravi: User) -> None:
    unseen = make_flavor(make_cluster(), "new", "NEW", gpus_per_node=0, cpu_millis_per_node=0)
    make_queue(research, "new", [unseen])
    payload = GOOD | {"queue": "new", "gpus_per_replica": 16, "cpu_per_replica": "500"}
    assert validate_job(actor_of(ravi), payload, NOW).roles[0].gpus_per_replica == 16


def test_default_sizes_never_exceed_a_replicas_share_of_the_node(
    research: Tenant, ravi: User
) -> None:
    small = make_flavor(make_cluster(), "small", "L4", gpus_per_node=4, cpu_millis_per_node=16_000)
    make_queue(research, "small", [small])
    spec = validate_job(actor_of(ravi), GOOD | {"queue": "small", "gpus_per_replica": 4}, NOW)
    assert spec.roles[0].cpu_millis_per_replica == 14_400


def test_a_queues_longest_run_time_is_the_default_without_another(shop: Tenant, ravi: User) -> None:
    spec = validate_job(actor_of(ravi), GOOD | {"queue": "short"}, NOW)
    assert spec.max_runtime_seconds == 3600


def test_priority_ranges_follow_role_queue_and_tenant(shop: Tenant, ravi: User) -> None:
    olivia = make_member(shop, "olivia", TenantRole.ADMIN)
    assert validate_job(actor_of(olivia), GOOD | {"priority": "high"}, NOW).priority == 900
    Tenant.objects.filter(pk=shop.pk).update(highest_priority=300, lowest_priority=50)
    assert validate_job(actor_of(olivia), GOOD, NOW).priority == 300
    assert faults(olivia, GOOD | {"priority": 20}) == [("/priority", "out_of_range")]


def test_an_invisible_tenant_is_refused_as_an_unknown_one(shop: Tenant, ravi: User) -> None:
    answers = []
    for slug in ("vision", "nobody"):
        with pytest.raises(InvalidError) as caught:
            validate_job(actor_of(ravi), GOOD | {"tenant": slug}, NOW)
        answers.append(caught.value.errors[0].message.replace(slug, "…"))
    assert answers[0] == answers[1]


def test_a_viewer_may_not_submit(shop: Tenant) -> None:
    vera = make_member(shop, "vera", TenantRole.VIEWER)
    with pytest.raises(ForbiddenError):
        validate_job(actor_of(vera), GOOD, NOW)


def test_jobs_of_other_tenants_cannot_be_depended_on(shop: Tenant, ravi: User) -> None:
    vision = Tenant.objects.get(slug="vision")
    hidden = make_job(vision.queues.get(), make_member(vision, "mei"), external_id="theirs")
    for needed in ({"job": hidden.id}, {"external_id": "theirs"}):
        assert faults(ravi, GOOD | {"depends_on": [needed]})[0][1] == "unknown_job"


def test_stored_jobs_can_be_depended_on_by_either_name(shop: Tenant, ravi: User) -> None:
    first = make_job(shop.queues.get(name="train"), ravi, external_id="first")
    for needed in ({"job": first.id}, {"external_id": "first", "on": "finished"}):
        spec = validate_job(actor_of(ravi), GOOD | {"depends_on": [needed]}, NOW)
        assert len(spec.depends_on) == 1
    twice = GOOD | {"depends_on": [{"job": first.id}, {"job": first.id}]}
    assert faults(ravi, twice) == [("/depends_on/1", "duplicate")]


def chain(*links: tuple[str, str | None], **changes: Any) -> list[dict[str, Any]]:
    """Jobs with external ids, each after the one named."""
    return [
        GOOD
        | {"external_id": name}
        | ({"depends_on": [{"external_id": after}]} if after else {})
        | changes
        for name, after in links
    ]


def codes(user: User, payloads: list[Any]) -> list[str]:
    """The first error's code of each member, empty for those accepted."""
    members = validate_batch(actor_of(user), payloads, NOW)
    return [
        member.problem.errors[0].code if member.problem is not None else "" for member in members
    ]


def test_a_batch_may_name_its_own_members_in_any_order(shop: Tenant, ravi: User) -> None:
    assert codes(ravi, chain(("c", "b"), ("a", None), ("b", "a"))) == ["", "", ""]


def test_a_circle_is_an_error_on_each_member_and_on_those_that_need_them(
    shop: Tenant, ravi: User
) -> None:
    found = codes(ravi, chain(("a", "c"), ("b", "a"), ("c", "b"), ("d", "a"), ("e", None)))
    assert found == [
        "dependency_circle",
        "dependency_circle",
        "dependency_circle",
        "dependency_refused",
        "",
    ]


def test_a_long_chain_is_no_circle(shop: Tenant, ravi: User) -> None:
    links = [(f"j{n}", f"j{n - 1}" if n else None) for n in reversed(range(500))]
    assert set(codes(ravi, chain(*links))) == {""}


def test_whoever_needs_a_refused_member_is_refused_too(shop: Tenant, ravi: User) -> None:
    payloads = chain(("a", None), ("b", "a"), ("c", "b"))
    payloads[0] |= {"replicas": 0}
    assert codes(ravi, payloads) == ["too_small", "dependency_refused", "dependency_refused"]


def test_batch_members_that_are_no_objects_are_refused_alone(shop: Tenant, ravi: User) -> None:
    assert codes(ravi, [GOOD, 7, None, GOOD]) == ["", "not_an_object", "not_an_object", ""]


def test_a_batch_costs_a_fixed_number_of_queries(
    shop: Tenant, ravi: User, django_assert_max_num_queries: Any
) -> None:
    actor = actor_of(ravi)
    with django_assert_max_num_queries(12):
        members = validate_batch(actor, [GOOD] * 200 + chain(*[("a", None), ("b", "a")] * 50), NOW)
    assert all(member.problem is None for member in members)


def test_a_sole_role_in_roles_is_as_good_as_the_short_form(shop: Tenant, ravi: User) -> None:
    spec = validate_job(actor_of(ravi), role(name="main", env={"A": "1"}), NOW)
    assert spec.roles[0].env == {"A": "1"}
    assert spec.decides == "main"
