"""WHO: users, tenants, cohorts, members, secrets, API tokens and the audit trail."""

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

# A DNS label that leaves room for "muster-" in front: namespaces have at most 63 characters.
SLUG_PATTERN = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
slug_validator = RegexValidator(
    SLUG_PATTERN,
    _(
        "must be lower-case letters, digits and hyphens, begin with a letter, and have at most 40 characters"
    ),
)


class PlatformRole(models.TextChoices):
    """What a person may do beyond their tenants (CONTRACT, "Who may do what")."""

    NONE = "", _("none")
    ADMIN = "admin", _("platform admin")
    OPERATOR = "operator", _("operator")
    AUDITOR = "auditor", _("auditor")


class User(AbstractUser):
    """A person or a service account. Django's staff and superuser flags give no right in Muster."""

    platform_role = models.CharField(
        max_length=16, choices=PlatformRole.choices, default=PlatformRole.NONE, blank=True
    )
    time_zone = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(platform_role__in=["", "admin", "operator", "auditor"]),
                name="user_platform_role_known",
            )
        ]


class CohortOrder(models.TextChoices):
    """How the tenants of a cohort take turns."""

    CLASSIC = "classic", _("classic: who does not borrow first, then priority, then age")
    FAIR_SHARE = "fair_share", _("fair share: who has had less than its share first")


class Cohort(models.Model):
    """Tenants and cohorts that lend to and borrow from each other; a tree."""

    name = models.CharField(max_length=40, unique=True, validators=[slug_validator])
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children"
    )
    order = models.CharField(
        max_length=10,
        choices=CohortOrder.choices,
        default=CohortOrder.CLASSIC,
        db_default=CohortOrder.CLASSIC,
    )

    def __str__(self) -> str:
        return self.name


class Tenant(models.Model):
    """A team with quota. `slug` is its identity in URLs, labels and the namespace `muster-<slug>`."""

    slug = models.CharField(max_length=40, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=120)
    cohort = models.ForeignKey(
        Cohort, null=True, blank=True, on_delete=models.PROTECT, related_name="tenants"
    )
    # Rises with every change of the tenant's quotas; the ETag of `tenants/T/quotas/`.
    quota_version = models.PositiveIntegerField(default=1)
    lowest_priority = models.PositiveSmallIntegerField(default=0)
    highest_priority = models.PositiveSmallIntegerField(default=1000)
    log_retention_days = models.PositiveSmallIntegerField(default=14)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(highest_priority__lte=1000)
                & Q(lowest_priority__lte=models.F("highest_priority")),
                name="tenant_priority_range",
            )
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def namespace(self) -> str:
        """The Kubernetes namespace that holds the tenant's pods."""
        return f"muster-{self.slug}"


class TenantRole(models.TextChoices):
    """What a member may do in a tenant; each includes the ones below it."""

    ADMIN = "admin", _("admin")
    SUBMITTER = "submitter", _("submitter")
    VIEWER = "viewer", _("viewer")


class Membership(models.Model):
    """A user's role in a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=TenantRole.choices)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_once"),
            models.CheckConstraint(
                condition=Q(role__in=["admin", "submitter", "viewer"]), name="membership_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.tenant_id}: {self.role}"


class Secret(models.Model):
    """A value that jobs may use as environment or pull secret. Written, never read back by people."""

    KINDS: ClassVar = [("opaque", _("value")), ("dockerconfigjson", _("image pull secret"))]

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=40, validators=[slug_validator])
    kind = models.CharField(max_length=20, choices=KINDS, default="opaque")
    encrypted_value = models.BinaryField()
    version = models.PositiveIntegerField(default=1)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="secret_name_once")]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name}"


class ApiToken(models.Model):
    """A bearer token: stored as a hash, recognisable by its prefix, limited by scopes, tenant and date."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    # Where set, the token reaches this tenant only, whatever else its user may see.
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=16)
    token_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_from = models.CharField(max_length=45, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class AuditEntry(models.Model):
    """Who did what to what, when, from where and why. Appended, never changed."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    via = models.CharField(max_length=40, blank=True)
    address = models.CharField(max_length=45, blank=True)
    action = models.CharField(max_length=64)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    object_kind = models.CharField(max_length=40)
    object_name = models.CharField(max_length=200)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-id"], name="audit_by_tenant"),
            models.Index(fields=["at"], name="audit_by_time"),
        ]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.object_kind} {self.object_name}"
