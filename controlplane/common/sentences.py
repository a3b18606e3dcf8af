"""What an event of the log says, as one line of a timeline. Pure; called by the template tags.

Reasons have their sentences in `queues.reasons`; here a reason is named by its few plain words.
"""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from controlplane.common.amounts import NONE, duration
from controlplane.common.looks import ENDINGS, OUTCOMES, PHASES, Look, reason_look, spoken

EVENT_WORDS: Mapping[str, Promise] = {
    "job.submitted": _("Submitted to {queue} with priority {priority}"),
    "job.changed": _("Changed"),
    "attempt.placed": _("Attempt {attempt} has its nodes"),
    "attempt.started": _("Attempt {attempt} has started"),
    "attempt.stopping": _("Asked to stop ({cause}), with {grace_seconds} to save"),
    "attempt.ended": _("Attempt {attempt} ended ({ended_by})"),
    "placement.released": _("Pods gone: {pods}. GPUs free again: {gpus}"),
    "attempt.unknown": _("Its node is not heard of"),
    "attempt.known_again": _("Its node is heard of again"),
    "attempt.blamed": _("Not the job's fault: its hardware was"),
    "eviction.ordered": _("Is to leave"),
    "eviction.signalled": _("Its pods were told to leave"),
    "eviction.ended": _("It has left"),
    "eviction.withdrawn": _("It may stay"),
    "preemption.held": _("Room is being made for it"),
    "preemption.given_up": _("Room is no longer being made for it"),
    "node.health": _("Health: {before} → {after}"),
    "alert.opened": _("An alert was opened"),
    "alert.acknowledged": _("Somebody looks after the alert"),
    "alert.silenced": _("The alert is silenced"),
    "alert.resolved": _("The alert is over"),
    "node.draining": _("Is being emptied"),
    "node.empty": _("The node is empty"),
    "job.maintenance_ahead": _("A maintenance window is ahead"),
    "attempt.checkpoint": _("Saved at step {step}"),
    "window.created": _("A window was planned"),
    "window.changed": _("A window was changed"),
    "window.cancelled": _("A window was cancelled"),
    "node.cordoned": _("Cordoned"),
    "node.uncordoned": _("Uncordoned"),
    "node.changed": _("Kubernetes changed the node"),
    "node.gone": _("The node is gone from Kubernetes"),
    "node.label_wanted": _("Its label {key} is to be {value}"),
    "node.label_unwanted": _("Its label {key} is to go"),
    "node.drained": _("Is to be emptied"),
    "node.returned": _("A person says that it is well again"),
    "node.burn_in": _("A person has asked for a burn-in"),
    "gpu.overridden": _("A person has spoken about a GPU"),
    "attempt.adopted": _("Found running, and taken over"),
    "drift.found": _("Ledger and pods differ"),
    "drift.healed": _("Ledger and pods agree again"),
    "job.maintenance_moved": _("The maintenance window ahead was moved"),
    "job.maintenance_off": _("The maintenance window ahead was called off"),
}
# Looks of events that are no phase: the key of a glyph.
EVENT_GLYPHS: Mapping[str, str] = {
    "job.submitted": "pending",
    "attempt.placed": "placed",
    "attempt.started": "running",
    "attempt.stopping": "stopping",
    "attempt.unknown": "node_failure",
    "node.cordoned": "draining",
    "node.uncordoned": "free",
    "node.gone": "node_failure",
    "node.draining": "draining",
    "node.drained": "draining",
    "eviction.ordered": "preempted",
    "eviction.signalled": "preempted",
    "eviction.ended": "preempted",
    "drift.found": "warning",
    "drift.healed": "succeeded",
    "alert.opened": "warning",
    "job.maintenance_ahead": "maintenance",
    "job.maintenance_moved": "maintenance",
    "attempt.blamed": "node_failure",
}
CHANGED_FIELDS: Mapping[str, Promise] = {
    "max_runtime_seconds": _("time limit"),
    "priority": _("priority"),
    "queue": _("queue"),
}
PHASE_WORDS: Mapping[str, Promise] = {
    "pending": _("Waits again"),
    "held": _("Held"),
    "placed": _("Placed"),
    "starting": _("Pods are being created and bound"),
    "running": _("All replicas run"),
    "stopping": _("Stopping"),
}


def event_look(kind: str, numbers: Mapping[str, Any]) -> Look:
    """The look of an event: that of the phase or outcome that it tells of."""
    outcome, phase, ended = numbers.get("outcome"), numbers.get("to"), numbers.get("ended_by")
    known = OUTCOMES.get(str(outcome)) or PHASES.get(str(phase)) or ENDINGS.get(str(ended))
    return known or Look(EVENT_GLYPHS.get(kind, "dot"), kind)


def event_sentence(kind: str, message: str, numbers: Mapping[str, Any]) -> str:
    """One line of a timeline; kinds without words of their own show their message, else the kind."""
    words = _event_words(kind, numbers)
    if not words:
        return message or kind
    return f"{words}: {message}" if message else words


def _event_words(kind: str, numbers: Mapping[str, Any]) -> str:
    if kind == "job.phase" and numbers.get("outcome") in OUTCOMES:
        return _capital(str(OUTCOMES[str(numbers["outcome"])].word))
    if kind == "job.phase":
        return str(PHASE_WORDS.get(str(numbers.get("to")), ""))
    if kind == "job.reason":
        look = reason_look(str(numbers.get("code")))
        return _now("Waits. {kind}: {words}").format(kind=look.kind, words=look.word)
    if kind == "job.changed" and (changes := _changes(numbers)):
        return _now("Changed: {changes}").format(changes=changes)
    if kind == "node.label_wanted" and numbers.get("value") is None:
        kind = "node.label_unwanted"
    named = {
        key: ENDINGS[value].word if key in ("cause", "ended_by") and value in ENDINGS else value
        for key, value in numbers.items()
    }
    try:
        return str(EVENT_WORDS.get(kind, "")).format_map(spoken(named))
    except KeyError:
        return ""


def _changes(numbers: Mapping[str, Any]) -> str:
    """Fields that became different, with [before, after] of each."""
    return ", ".join(
        f"{CHANGED_FIELDS.get(name, name)} {_value(name, pair[0])} → {_value(name, pair[1])}"
        for name, pair in numbers.items()
        if isinstance(pair, list) and len(pair) == 2
    )


def _value(name: str, value: Any) -> str:
    if value is None:
        return NONE
    return duration(value) if name.endswith("_seconds") else str(value)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
