"""Quotas: who may change which field, what is refused, what is kept, what is counted as used, borrowed and lent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.common.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotVisibleError,
    StaleError,
)
from controlplane.common.models import Event
from queues.models import Queue, QueueLimit, Quota, UserLimit
from queues.selectors.quotas import flavor_uses, quota_answer
from queues.services.catalogue import record_outside_use
from queues.services.quotas import ask_for_quota, decide_quota_request, draft_quotas, set_quotas
from queues.usage import Holding, lent_shares
from tenants.models import AuditEntry, PlatformRole, Tenant, TenantRole, User
from tests.factories import (
    NOW,
    actor_of,
    make_cluster,
    make_flavor,
    make_job,
    make_member,
    make_queue,
    make_tenant,
    make_user,
    run_job,
)


@pytest.fixture
def tenant(train: Queue, ravi: User) -> Tenant:
    """research with 256 H100, 64 to borrow, 128 to lend, and its people."""
    tenant = train.tenant
    Quota.objects.filter(tenant=tenant).update(borrowing_limit=64, lending_limit=128)
    make_member(tenant, "olivia", TenantRole.ADMIN)
    make_member(tenant, "vera", TenantRole.VIEWER)
    make_member(make_tenant("vision"), "mei", TenantRole.ADMIN)
    make_user("admin", PlatformRole.ADMIN)
    make_user("ines", PlatformRole.OPERATOR)
    make_user("sam", PlatformRole.AUDITOR)
    return tenant


def flavors(**changes: Any) -> dict[str, Any]:
    """A body that changes research's H100."""
    return {"flavors": [{"flavor": "h100"} | changes]}


# What is changed: sent, then whether the tenant's admin may; a platform admin may all.
CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "raise nominal": (flavors(nominal=257), False),
    "lower nominal": (flavors(nominal=200), False),
    "raise borrowing": (flavors(borrowing_limit=65), False),
    "borrow without limit": (flavors(borrowing_limit=None), False),
    "lower borrowing": (flavors(borrowing_limit=63), True),
    "borrow nothing": (flavors(borrowing_limit=0), True),
    "lend more": (flavors(lending_limit=200), True),
    "lend all": (flavors(lending_limit=None), True),
    "lend nothing": (flavors(lending_limit=0), True),
    "keep headroom": (flavors(headroom=16), True),
    "weigh more": (flavors(weight=2), False),
    "remove a flavor": ({"flavors": []}, False),
    "add a flavor": (
        {"flavors": [{"flavor": "h100"}, {"flavor": "b200", "nominal": 8}]},
        False,
    ),
    "limit a queue": ({"queues": [{"queue": "train", "flavor": "h100", "limit": 64}]}, True),
    "limit a user": ({"users": [{"user": "ravi", "flavor": "h100", "limit": 16}]}, True),
}
# Nobody else changes anything: error for each.
OTHERS = {
    "ravi": ForbiddenError,
    "vera": ForbiddenError,
    "ines": ForbiddenError,
    "sam": ForbiddenError,
    "mei": NotVisibleError,
}


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize("what", CHANGES)
def test_who_may_change_what(what: str, tenant: Tenant) -> None:
    make_flavor(make_cluster(), "b200", "B200")
    sent, tenant_admin_may = CHANGES[what]
    for name, error in OTHERS.items():
        with pytest.raises(error):
            set_quotas(actor_of(make_user(name)), tenant, sent, None, NOW)
    olivia = actor_of(make_user("olivia"))
    if tenant_admin_may:
        assert set_quotas(olivia, tenant, sent, 1, NOW).quota_version == 2
        return
    with pytest.raises(ForbiddenError) as caught:
        set_quotas(olivia, tenant, sent, 1, NOW)
    assert caught.value.code == "beyond_tenant_admin"
    assert caught.value.errors[0].pointer.startswith("/flavors")
    tenant.refresh_from_db()
    assert tenant.quota_version == 1
    assert set_quotas(actor_of(make_user("admin")), tenant, sent, 1, NOW).quota_version == 2


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_refusal_names_every_field_that_is_beyond(tenant: Tenant) -> None:
    sent = flavors(nominal=1, borrowing_limit=999, weight=9, lending_limit=1)
    with pytest.raises(ForbiddenError) as caught:
        set_quotas(actor_of(make_user("olivia")), tenant, sent, None, NOW)
    assert {error.pointer for error in caught.value.errors} == {
        "/flavors/0/nominal",
        "/flavors/0/borrowing_limit",
        "/flavors/0/weight",
    }
    assert Quota.objects.get(tenant=tenant).lending_limit == 128


@pytest.mark.django_db
@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("sent", "pointer", "code"),
    [
        (flavors(nominal=-1), "/flavors/0/nominal", "too_small"),
        (flavors(nominal="8"), "/flavors/0/nominal", "not_an_integer"),
        (flavors(nominal=10, lending_limit=11), "/flavors/0/lending_limit", "too_large"),
        (flavors(headroom=257), "/flavors/0/headroom", "too_large"),
        (flavors(weight=0), "/flavors/0/weight", "invalid_weight"),
        (flavors(weight=1.0001), "/flavors/0/weight", "invalid_weight"),
        (flavors(weight="much"), "/flavors/0/weight", "invalid_weight"),
        (flavors(typo=1), "/flavors/0/typo", "unknown_field"),
        ({"flavors": [{"flavor": "v100"}]}, "/flavors/0/flavor", "unknown_flavor"),
        (
            {"flavors": [{"flavor": "h100"}, {"flavor": "demo/h100"}]},
            "/flavors/1/flavor",
            "duplicate",
        ),
        ({"flavors": {}}, "/flavors", "not_an_array"),
        (
            {"queues": [{"queue": "nope", "flavor": "h100", "limit": 1}]},
            "/queues/0/queue",
            "unknown_queue",
        ),
        (
            {"queues": [{"queue": "train", "flavor": "b200", "limit": 1}]},
            "/queues/0/flavor",
            "not_allowed_by_queue",
        ),
        ({"queues": [{"queue": "train", "flavor": "h100"}]}, "/queues/0/limit", "required"),
        (
            {"users": [{"user": "mei", "flavor": "h100", "limit": 1}]},
            "/users/0/user",
            "unknown_user",
        ),
        ({"tenants": []}, "/tenants", "unknown_field"),
    ],
)
def test_wrong_quotas_name_their_field_and_change_nothing(
    tenant: Tenant, sent: dict[str, Any], pointer: str, code: str
) -> None:
    make_flavor(make_cluster(), "b200", "B200")
    before = quota_answer(tenant)
    with pytest.raises(InvalidError) as caught:
        set_quotas(actor_of(make_user("admin")), tenant, sent, 1, NOW)
    assert (pointer, code) in [(e.pointer, e.code) for e in caught.value.errors]
    tenant.refresh_from_db()
    assert quota_answer(tenant) == before


@pytest.mark.django_db
@pytest.mark.sqlite
def test_what_is_read_can_be_sent_back_and_changes_nothing(tenant: Tenant) -> None:
    set_quotas(actor_of(make_user("olivia")), tenant, CHANGES["limit a user"][0], None, NOW)
    tenant.refresh_from_db()
    answer = quota_answer(tenant)
    assert set_quotas(actor_of(make_user("olivia")), tenant, answer, 2, NOW).quota_version == 2
    assert quota_answer(tenant) == answer
    assert Event.objects.filter(kind="quota.changed").count() == 1


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_section_that_was_sent_replaces_and_one_that_was_not_stays(tenant: Tenant) -> None:
    olivia = actor_of(make_user("olivia"))
    set_quotas(olivia, tenant, CHANGES["limit a user"][0], None, NOW)
    set_quotas(olivia, tenant, CHANGES["limit a queue"][0], None, NOW)
    assert UserLimit.objects.get().limit == 16
    assert QueueLimit.objects.get().limit == 64
    set_quotas(olivia, tenant, {"users": []}, None, NOW)
    assert not UserLimit.objects.exists()
    assert QueueLimit.objects.exists()


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_stale_version_is_refused(tenant: Tenant) -> None:
    olivia = actor_of(make_user("olivia"))
    set_quotas(olivia, tenant, flavors(lending_limit=1), 1, NOW)
    with pytest.raises(StaleError):
        set_quotas(olivia, tenant, flavors(lending_limit=2), 1, NOW)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_change_is_told_and_audited_with_before_and_after(tenant: Tenant) -> None:
    set_quotas(actor_of(make_user("olivia")), tenant, flavors(lending_limit=1), 1, NOW)
    event = Event.objects.get(kind="quota.changed")
    assert (event.tenant, event.cluster, event.numbers["flavors"]) == ("research", "demo", ["h100"])
    entry = AuditEntry.objects.get(action="quotas.changed")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["h100"]["lending_limit"], entry.after["h100"]["lending_limit"]) == (128, 1)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_draft_changes_nothing(tenant: Tenant) -> None:
    draft = draft_quotas(actor_of(make_user("olivia")), tenant, flavors(lending_limit=1))
    (after,) = draft.after.flavors.values()
    assert after.lending_limit == 1
    assert Quota.objects.get(tenant=tenant).lending_limit == 128


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_flavor_of_two_clusters_is_named_with_its_cluster(tenant: Tenant) -> None:
    make_flavor(make_cluster("other"), "h100")
    admin = actor_of(make_user("admin"))
    with pytest.raises(InvalidError) as caught:
        set_quotas(admin, tenant, flavors(nominal=1), None, NOW)
    assert caught.value.errors[0].code == "ambiguous_flavor"
    assert quota_answer(tenant)["flavors"][0]["flavor"] == "demo/h100"
    sent = {"flavors": [{"flavor": "demo/h100"}, {"flavor": "other/h100", "nominal": 4}]}
    set_quotas(admin, tenant, sent, None, NOW)
    assert Quota.objects.filter(tenant=tenant).count() == 2


# --- requests ---


@pytest.mark.django_db
@pytest.mark.sqlite
def test_an_accepted_request_is_applied_and_a_refused_one_is_not(tenant: Tenant) -> None:
    olivia, admin = actor_of(make_user("olivia")), actor_of(make_user("admin"))
    first = ask_for_quota(olivia, tenant, flavors(nominal=300), "for the big run", NOW)
    second = ask_for_quota(olivia, tenant, flavors(nominal=900), "", NOW)
    with pytest.raises(ForbiddenError):
        decide_quota_request(olivia, first, accept=True, comment="", now=NOW)
    decide_quota_request(admin, first, accept=True, comment="fine", now=NOW)
    decide_quota_request(admin, second, accept=False, comment="too much", now=NOW)
    assert Quota.objects.get(tenant=tenant).nominal == 300
    with pytest.raises(ConflictError):
        decide_quota_request(admin, second, accept=True, comment="", now=NOW)
    second.refresh_from_db()
    assert (second.state, second.decision_comment) == ("refused", "too much")


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_request_that_no_longer_holds_is_not_half_accepted(tenant: Tenant) -> None:
    olivia, admin = actor_of(make_user("olivia")), actor_of(make_user("admin"))
    request = ask_for_quota(olivia, tenant, flavors(lending_limit=256), "", NOW)
    set_quotas(admin, tenant, flavors(nominal=10, lending_limit=1), None, NOW)
    with pytest.raises(InvalidError):
        decide_quota_request(admin, request, accept=True, comment="", now=NOW)
    request.refresh_from_db()
    assert request.state == "open"


@pytest.mark.django_db
@pytest.mark.sqlite
def test_a_request_for_nothing_is_refused(tenant: Tenant) -> None:
    with pytest.raises(InvalidError):
        ask_for_quota(actor_of(make_user("olivia")), tenant, flavors(nominal=256), "", NOW)


# --- usage ---


@pytest.mark.django_db
@pytest.mark.sqlite
def test_use_is_counted_over_the_cohort_tree(db: None) -> None:
    flavor = make_flavor(make_cluster())
    research, vision = make_tenant("research", "all"), make_tenant("vision", "all")
    ravi = make_member(research, "ravi")
    queue = make_queue(research, nominal=16)
    make_queue(vision, nominal=64)
    run_job(make_job(queue, ravi, replicas=3))  # 24 GPUs: 8 above nominal
    record_outside_use(flavor.cluster, {(research.pk, flavor.pk): 4}, NOW)
    (mine,), (theirs,) = flavor_uses(research), flavor_uses(vision)
    assert (mine.used, mine.outside, mine.borrowed, mine.lent) == (24, 4, 12, 0)
    assert (theirs.used, theirs.borrowed, theirs.lent) == (0, 0, 12)


@pytest.mark.django_db
@pytest.mark.sqlite
def test_outside_use_is_written_only_when_it_differs(train: Queue) -> None:
    flavor = train.flavors.get()
    used = {(train.tenant_id, flavor.pk): 4}
    assert record_outside_use(train.cluster, used, NOW) == 1
    assert record_outside_use(train.cluster, used, NOW) == 0
    assert record_outside_use(train.cluster, {}, NOW) == 1
    assert Event.objects.filter(kind="quota.outside").count() == 2


@given(
    st.dictionaries(
        st.integers(1, 9),
        st.builds(
            Holding,
            nominal=st.integers(0, 50),
            used=st.integers(0, 99),
            outside=st.integers(0, 9),
            headroom=st.integers(0, 20),
            lending_limit=st.none() | st.integers(0, 50),
        ),
    )
)
def test_what_is_lent_is_what_is_borrowed_and_nobody_lends_what_is_not_idle(
    holdings: dict[int, Holding],
) -> None:
    lent = lent_shares(holdings)
    borrowed = sum(holding.borrowed for holding in holdings.values())
    idle = sum(holding.lendable for holding in holdings.values())
    assert sum(lent.values()) == min(borrowed, idle)
    assert all(0 <= lent[key] <= holding.lendable for key, holding in holdings.items())
