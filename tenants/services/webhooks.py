"""Webhook endpoints: registered, changed, tried, removed, by a tenant's admins or, for the platform, by its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils.translation import gettext as _
from ulid import ULID

from controlplane.common import log
from controlplane.common.errors import ErrorCollector
from tenants import vault
from tenants.access import Actor, Right, require
from tenants.models import OutboxMessage, Tenant, WebhookEndpoint
from tenants.services.audit import Change, write_audit
from tenants.services.outbox import post_to
from tenants.webhook_calls import AddressError, allowed_networks, check_url, new_secret

# What can be heard of; a trailing dot stands for all that begin so.
KINDS = ("alert.", "alert.opened", "alert.resolved")
MOST_PER_TENANT = 20


@dataclass(frozen=True, slots=True)
class EndpointFields:
    """What people choose. kinds: empty for every kind."""

    url: str
    kinds: Sequence[str] = ()
    description: str = ""
    active: bool = True


def create_endpoint(
    actor: Actor, tenant: Tenant | None, wanted: EndpointFields, now: datetime
) -> tuple[WebhookEndpoint, str]:
    """Register an endpoint. Returns it with its signing secret, which is shown this once.

    Raises InvalidError with the field; NoFieldKeyError where no secret can be stored.
    """
    require(actor, Right.MANAGE_WEBHOOKS, tenant)
    _check(wanted, tenant)
    secret = new_secret()
    with log.writing():
        endpoint = WebhookEndpoint.objects.create(
            tenant=tenant,
            url=wanted.url,
            kinds=list(wanted.kinds),
            description=wanted.description.strip(),
            active=wanted.active,
            encrypted_secret=vault.encrypt(secret.encode()),
            created_by=actor.user,
            created_at=now,
        )
        _note(actor, endpoint, "created", now)
    return endpoint, secret


def change_endpoint(
    actor: Actor, endpoint: WebhookEndpoint, wanted: EndpointFields, now: datetime
) -> WebhookEndpoint:
    """Change address, kinds, description, or switch it on again. Raises as `create_endpoint`."""
    require(actor, Right.MANAGE_WEBHOOKS, endpoint.tenant)
    _check(wanted, None)
    with log.writing():
        row = WebhookEndpoint.objects.select_for_update(of=("self",)).get(pk=endpoint.pk)
        row.url, row.kinds = wanted.url, list(wanted.kinds)
        row.description, row.active = wanted.description.strip(), wanted.active
        row.disabled_reason, row.failing_since = "", None
        row.save()
        _note(actor, row, "changed", now)
    return row


def renew_secret(
    actor: Actor, endpoint: WebhookEndpoint, now: datetime
) -> tuple[WebhookEndpoint, str]:
    """Another signing secret from now on, shown this once."""
    require(actor, Right.MANAGE_WEBHOOKS, endpoint.tenant)
    secret = new_secret()
    with log.writing():
        row = WebhookEndpoint.objects.select_for_update(of=("self",)).get(pk=endpoint.pk)
        row.encrypted_secret = vault.encrypt(secret.encode())
        row.save(update_fields=["encrypted_secret"])
        _note(actor, row, "secret_renewed", now)
    return row, secret


def remove_endpoint(actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> None:
    """Forget an endpoint and what it was still to be told."""
    require(actor, Right.MANAGE_WEBHOOKS, endpoint.tenant)
    with log.writing():
        _note(actor, endpoint, "removed", now)
        endpoint.delete()


def try_endpoint(actor: Actor, endpoint: WebhookEndpoint, now: datetime) -> OutboxMessage:
    """Send a message that means nothing, to see whether it arrives."""
    require(actor, Right.MANAGE_WEBHOOKS, endpoint.tenant)
    with log.writing():
        message = post_to(endpoint, "webhook.test", f"test/{ULID()}", {"by": actor.name}, now)
        _note(actor, endpoint, "tried", now)
    return message


def _check(wanted: EndpointFields, tenant: Tenant | None) -> None:
    errors = ErrorCollector()
    try:
        check_url(wanted.url, allowed_networks(settings.WEBHOOK_NETWORKS))
    except AddressError as error:
        errors.add("/url", "not_allowed", str(error))
    if len(wanted.url) > 500:
        errors.add("/url", "too_long", _("must have at most 500 characters"))
    for index, kind in enumerate(wanted.kinds):
        if kind not in KINDS:
            known = ", ".join(KINDS)
            errors.add(
                f"/kinds/{index}", "unknown_kind", _("must be one of {kinds}").format(kinds=known)
            )
    if len(wanted.description) > 120:
        errors.add("/description", "too_long", _("must have at most 120 characters"))
    if tenant is not None and tenant.webhook_endpoints.count() >= MOST_PER_TENANT:
        message = _("a tenant has at most {most} endpoints").format(most=MOST_PER_TENANT)
        errors.add("/url", "too_many", message)
    errors.raise_if_any()


def _note(actor: Actor, endpoint: WebhookEndpoint, what: str, now: datetime) -> None:
    after = {"url": endpoint.url, "kinds": endpoint.kinds, "active": endpoint.active}
    change = Change(f"webhook.{what}", "webhook", str(endpoint.pk), after=after)
    write_audit(actor, change, now=now, tenant=endpoint.tenant)
    if endpoint.tenant is not None:
        event = log.NewEvent(
            kind=f"webhook.{what}",
            at=now,
            tenant=endpoint.tenant.slug,
            actor=actor.name,
            numbers={"endpoint": endpoint.pk},
        )
        log.record(event)
