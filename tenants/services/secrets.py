"""Tenants' secrets: written by people, read back by none. The cluster process alone opens them."""

import json
from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ErrorCollector
from tenants import vault
from tenants.access import Actor, Right, require
from tenants.models import SLUG_PATTERN, Secret, Tenant
from tenants.services.audit import Change, write_audit
from tenants.services.checks import check_pattern

KINDS = tuple(kind for kind, _words in Secret.KINDS)
# A Kubernetes Secret holds at most 1 MiB, encoded and with its metadata.
MAX_VALUE_BYTES = 512 * 1024


def set_secret(
    actor: Actor, tenant: Tenant, *, name: str, value: str, kind: str, now: datetime
) -> tuple[Secret, bool]:
    """Store a value under a name, new or again. Returns (secret, whether it is new).

    Raises InvalidError with the field, NoFieldKeyError where nothing can be encrypted.
    """
    require(actor, Right.MANAGE_SECRETS, tenant)
    _check(name, value, kind)
    encrypted = vault.encrypt(value.encode())
    with log.writing():
        secret, is_new = Secret.objects.select_for_update().get_or_create(
            tenant=tenant,
            name=name,
            defaults={
                "kind": kind,
                "encrypted_value": encrypted,
                "created_by": actor.user,
                "created_at": now,
                "changed_at": now,
            },
        )
        if not is_new:
            secret.kind, secret.encrypted_value, secret.changed_at = kind, encrypted, now
            secret.version += 1
            secret.save(update_fields=["kind", "encrypted_value", "changed_at", "version"])
        _note(actor, secret, "created" if is_new else "changed", now)
    return secret, is_new


def remove_secret(actor: Actor, secret: Secret, now: datetime) -> None:
    """Forget a secret. Pods that have started keep what they were given."""
    require(actor, Right.MANAGE_SECRETS, secret.tenant)
    with log.writing():
        _note(actor, secret, "removed", now)
        secret.delete()


def secret_value(secret: Secret) -> bytes:
    """The value in the clear, for the pods of its tenant; no door calls this."""
    return vault.decrypt(bytes(secret.encrypted_value))


def _check(name: str, value: str, kind: str) -> None:
    errors = ErrorCollector()
    check_pattern(errors, "/name", name, SLUG_PATTERN)
    if kind not in KINDS:
        errors.add("/kind", "unknown_kind", _("must be one of {all}").format(all=", ".join(KINDS)))
    if not value:
        errors.add("/value", "required", _("must not be empty"))
    elif len(value.encode(errors="surrogatepass")) > MAX_VALUE_BYTES:
        errors.add("/value", "too_large", _("must have at most 512 KiB"))
    elif kind == "dockerconfigjson" and not _is_docker_config(value):
        errors.add("/value", "invalid", _('must be a Docker config: {"auths": {…}}'))
    errors.raise_if_any()


def _is_docker_config(value: str) -> bool:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("auths"), dict)


def _note(actor: Actor, secret: Secret, what: str, now: datetime) -> None:
    tenant = secret.tenant
    after = None if what == "removed" else {"kind": secret.kind, "version": secret.version}
    change = Change(f"secret.{what}", "secret", secret.name, after=after)
    write_audit(actor, change, now=now, tenant=tenant)
    # Without the name: the event is read by all who see the tenant, the name is not.
    log.record(
        log.NewEvent(
            kind=f"secret.{what}",
            at=now,
            tenant=tenant.slug,
            actor=actor.name,
            numbers={"secret": secret.pk},
        )
    )
