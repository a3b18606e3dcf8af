"""Burn-ins, for the `cluster` process and others outside the ledger: what is wanted, and what became of it."""

from scheduler.services.health.burning import (
    NAMESPACE,
    cancel_burn_ins,
    note_burn_in,
    open_burn_ins,
    request_burn_in,
)

__all__ = ["NAMESPACE", "cancel_burn_ins", "note_burn_in", "open_burn_ins", "request_burn_in"]
