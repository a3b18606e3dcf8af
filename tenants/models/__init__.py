"""WHO, in rows: users, tenants, cohorts, members, secrets, API tokens, the audit trail; and what they are told."""

from tenants.models.outbox import MailChoice, OutboxMessage, WebhookEndpoint
from tenants.models.people import (
    SLUG_PATTERN,
    ApiToken,
    AuditEntry,
    Cohort,
    CohortOrder,
    Membership,
    PlatformRole,
    Secret,
    Tenant,
    TenantRole,
    User,
    slug_validator,
)

__all__ = [
    "SLUG_PATTERN",
    "ApiToken",
    "AuditEntry",
    "Cohort",
    "CohortOrder",
    "MailChoice",
    "Membership",
    "OutboxMessage",
    "PlatformRole",
    "Secret",
    "Tenant",
    "TenantRole",
    "User",
    "WebhookEndpoint",
    "slug_validator",
]
