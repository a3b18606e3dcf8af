"""The REST doors of tenants, members, tokens, secrets, the audit trail and the event log."""
