"""What the REST doors take and answer, as serializers: they also write the OpenAPI document."""

from typing import Any, NoReturn

from django.utils.translation import gettext as _
from rest_framework import serializers

from controlplane.common.models import Event
from tenants.access import SCOPES, Actor
from tenants.models import ApiToken, AuditEntry, Membership, Secret, Tenant, TenantRole
from tenants.services.tokens import DEFAULT_DAYS, MOST_DAYS


class OneOf(serializers.ChoiceField):
    """A choice whose refusal says what would be right, and does not repeat what was sent."""

    def fail(self, key: str, **kwargs: Any) -> NoReturn:
        """Raises ValidationError."""
        if key == "invalid_choice":
            options = ", ".join(str(choice) for choice in self.choices)
            message = _("must be one of {options}").format(options=options)
            raise serializers.ValidationError(message, code=key)
        super().fail(key, **kwargs)


class TenantAnswer(serializers.ModelSerializer[Tenant]):
    """A tenant; `role` is the caller's own in it, null without one."""

    cohort = serializers.CharField(source="cohort.name", default=None, allow_null=True)
    role = serializers.SerializerMethodField()

    class Meta:
        model = Tenant
        fields = [
            "slug",
            "name",
            "cohort",
            "role",
            "namespace",
            "quota_version",
            "lowest_priority",
            "highest_priority",
            "log_retention_days",
            "created_at",
        ]

    def get_role(self, tenant: Tenant) -> str | None:
        """The caller's role."""
        actor: Actor | None = self.context.get("actor")
        role = actor.roles.get(tenant.pk) if actor else None
        return role.value if role else None


class TenantSent(serializers.Serializer[Any]):
    """A tenant to be made."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120)
    cohort = serializers.CharField(max_length=40, allow_blank=True, default="")
    lowest_priority = serializers.IntegerField(min_value=0, max_value=1000, default=0)
    highest_priority = serializers.IntegerField(min_value=0, max_value=1000, default=1000)
    log_retention_days = serializers.IntegerField(min_value=1, max_value=400, default=14)


class TenantChanges(serializers.Serializer[Any]):
    """What may be altered of a tenant."""

    name = serializers.CharField(max_length=120, required=False)
    cohort = serializers.CharField(max_length=40, allow_blank=True, required=False)
    lowest_priority = serializers.IntegerField(min_value=0, max_value=1000, required=False)
    highest_priority = serializers.IntegerField(min_value=0, max_value=1000, required=False)
    log_retention_days = serializers.IntegerField(min_value=1, max_value=400, required=False)


class MemberAnswer(serializers.ModelSerializer[Membership]):
    """A member of a tenant."""

    user = serializers.CharField(source="user.username")
    name = serializers.CharField(source="user.get_full_name")
    since = serializers.DateTimeField(source="created_at")

    class Meta:
        model = Membership
        fields = ["user", "name", "role", "since"]


class MemberSent(serializers.Serializer[Any]):
    """A member to be added."""

    user = serializers.CharField(max_length=150)
    role = OneOf(choices=TenantRole.choices)


class RoleSent(serializers.Serializer[Any]):
    """Another role for a member."""

    role = OneOf(choices=TenantRole.choices)


class TokenAnswer(serializers.ModelSerializer[ApiToken]):
    """A token without its text."""

    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.slug", default=None, allow_null=True)
    scopes = serializers.ListField(child=OneOf(choices=SCOPES))

    class Meta:
        model = ApiToken
        fields = [
            "id",
            "name",
            "prefix",
            "user",
            "tenant",
            "scopes",
            "created_at",
            "expires_at",
            "last_used_at",
            "last_used_from",
            "revoked_at",
        ]


class NewTokenAnswer(TokenAnswer):
    """A token with its text, which is shown this once; null in an answer that is replayed."""

    token = serializers.CharField(allow_null=True)

    class Meta(TokenAnswer.Meta):
        fields = [*TokenAnswer.Meta.fields, "token"]


class TokenSent(serializers.Serializer[Any]):
    """A token to be made. Without `user` it acts as its maker; without `tenant` in the address, for one tenant."""

    name = serializers.CharField(max_length=80)
    user = serializers.CharField(max_length=150, required=False)
    scopes = serializers.ListField(child=OneOf(choices=SCOPES), allow_empty=False)
    days = serializers.IntegerField(
        min_value=1, max_value=MOST_DAYS, allow_null=True, default=DEFAULT_DAYS
    )


class SecretAnswer(serializers.ModelSerializer[Secret]):
    """A secret without its value."""

    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)

    class Meta:
        model = Secret
        fields = ["name", "kind", "version", "created_by", "created_at", "changed_at"]


class SecretSent(serializers.Serializer[Any]):
    """A secret to be stored. For `dockerconfigjson` the value is the file's text."""

    name = serializers.CharField(max_length=40)
    kind = OneOf(choices=Secret.KINDS, default="opaque")
    value = serializers.CharField(trim_whitespace=False, write_only=True)


class AuditAnswer(serializers.ModelSerializer[AuditEntry]):
    """Who did what to what, when, from where and why."""

    tenant = serializers.CharField(source="tenant.slug", default=None, allow_null=True)

    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "at",
            "actor",
            "via",
            "address",
            "action",
            "tenant",
            "object_kind",
            "object_name",
            "before",
            "after",
            "reason",
        ]


class EventAnswer(serializers.ModelSerializer[Event]):
    """One line of the event log; what an event does not concern is null."""

    class Meta:
        model = Event
        fields = ["seq", "at", "kind", "tenant", "job", "node", "actor", "message", "numbers"]

    def to_representation(self, instance: Event) -> dict[str, Any]:
        """Empty names as null."""
        shown = super().to_representation(instance)
        for name in ("tenant", "job", "node", "actor"):
            shown[name] = shown[name] or None
        return shown


class EventsAnswer(serializers.Serializer[Any]):
    """A page of the log. `after` is what to ask for next: it also counts events that one may not see."""

    results = EventAnswer(many=True)
    next = serializers.URLField(allow_null=True)
    after = serializers.IntegerField()


class MembershipAnswer(serializers.Serializer[Any]):
    """One of the caller's tenants."""

    tenant = serializers.CharField(source="slug")
    role = serializers.CharField()


class WhoAnswer(serializers.Serializer[Any]):
    """Who is calling, and what they are allowed. scopes: null for a browser session (all)."""

    user = serializers.CharField()
    platform_role = serializers.CharField(allow_null=True)
    via = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    tenants = MembershipAnswer(many=True)
