"""The kinds of alerts: how grave each is, what it says, and which runbook helps. Read by services, selectors, pages.

A closed table: an alert of another kind cannot be raised. `sentence` is filled with the alert's numbers and with
`cluster`, `node`, `gpu` (its index where the judge says it) and `job`; a number that was not given shows as "?".
`runbook` is docs/runbooks/<slug>.md.
"""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

INFO, WARNING, CRITICAL = "info", "warning", "critical"


@dataclass(frozen=True, slots=True)
class AlertKind:
    """One kind. severity: of an alert that is raised without one. one: the sentence where `count` is 1."""

    severity: str
    title: Promise | str
    sentence: Promise | str
    runbook: str
    one: Promise | str = ""


KINDS: dict[str, AlertKind] = {
    "gpu_fault": AlertKind(
        CRITICAL, _("GPU fault"), _("GPU {gpu} of node {node}: {cause}."), "gpu-fault"
    ),
    "gpu_suspect": AlertKind(
        WARNING, _("GPU suspect"), _("GPU {gpu} of node {node} is suspect: {cause}."), "gpu-fault"
    ),
    "ecc_errors": AlertKind(
        WARNING,
        _("ECC errors"),
        _("GPU {gpu} of node {node} counts {count} new ECC errors ({error_kind})."),
        "ecc-errors",
        one=_("GPU {gpu} of node {node} counts 1 new ECC error ({error_kind})."),
    ),
    "gpu_hot": AlertKind(
        WARNING,
        _("GPU too hot"),
        _("GPU {gpu} of node {node} is at {temperature_c} °C, above {limit_c} °C."),
        "gpu-hot",
    ),
    "node_suspect": AlertKind(
        WARNING,
        _("Node suspect"),
        _("Node {node} is suspect: {cause}. It keeps its jobs and gets no new pods."),
        "node-suspect",
    ),
    "node_lost": AlertKind(
        CRITICAL,
        _("Node lost"),
        _("Node {node} has not been ready for {seconds} s."),
        "node-lost",
    ),
    "budget_exhausted": AlertKind(
        CRITICAL,
        _("Budget for taking nodes out is used up"),
        _("{taken} of {allowed} nodes are out by rule on {cluster}; {node} needs a person."),
        "budget-exhausted",
    ),
    "exporter_down": AlertKind(
        WARNING,
        _("GPU metrics missing"),
        _("The exporter of {node} has not answered since {since}: its GPUs' health is unknown."),
        "exporter-down",
    ),
    "gpu_waste": AlertKind(
        WARNING,
        _("GPUs idle"),
        _("Job {job} uses its GPUs to {utilisation} %, for {minutes} minutes."),
        "gpu-waste",
    ),
    "memory_copy_bound": AlertKind(
        INFO,
        _("Memory copy is the bottleneck"),
        _("Job {job}: memory copy at {utilisation} %, for {minutes} minutes."),
        "gpu-waste",
    ),
    "job_stalled": AlertKind(
        WARNING,
        _("Job stalled"),
        _("Job {job} has given no sign of progress for {seconds} s."),
        "job-stalled",
    ),
    "job_infrastructure_budget": AlertKind(
        WARNING,
        _("Job keeps losing nodes"),
        _("Job {job} lost {count} attempts to faults of the cluster within a day."),
        "stuck-job",
    ),
    "over_admission": AlertKind(
        WARNING,
        _("More in use than the quota allows"),
        _("{name} uses {gpus} GPUs of {flavor} more than it may; nothing is stopped for that."),
        "over-admission",
    ),
    "burn_in_failed": AlertKind(
        WARNING, _("Burn-in failed"), _("Node {node} failed its burn-in: {cause}."), "burn-in"
    ),
    "joining_blocked": AlertKind(
        WARNING,
        _("Node cannot join"),
        _("Node {node} waits to join: {cause}."),
        "joining",
    ),
    "window_late": AlertKind(
        WARNING,
        _("Window begins with jobs on its nodes"),
        _("{nodes} nodes of the window “{title}” still run jobs at its start."),
        "maintenance-window",
    ),
    "drain_late": AlertKind(
        WARNING,
        _("Drain takes longer than planned"),
        _("Node {node} was to be empty at {latest_at} and still runs jobs."),
        "drain",
    ),
    "cluster_unreachable": AlertKind(
        CRITICAL,
        _("Cluster unreachable"),
        _("The API server of {cluster} has not answered since {since}."),
        "api-server-down",
    ),
    "cluster_silent": AlertKind(
        CRITICAL,
        _("No word from the cluster process"),
        _("The process that watches {cluster} has been silent since {since}."),
        "cluster-process-silent",
    ),
    "planner_silent": AlertKind(
        CRITICAL,
        _("Nothing is planned"),
        _("No planning cycle of {cluster} has ended since {since}."),
        "planner-silent",
    ),
    "ledger_drift": AlertKind(
        WARNING,
        _("Ledger and pods differ"),
        _("{count} pods of {cluster} do not match the ledger."),
        "ledger-drift",
    ),
    "snapshot_defect": AlertKind(
        CRITICAL,
        _("The planner's snapshot was wrong"),
        _("The warm snapshot of {cluster} differed from the rows and was rebuilt."),
        "snapshot-defect",
    ),
    "outbox_stuck": AlertKind(
        WARNING,
        _("Messages do not leave"),
        _("{count} mails or webhooks wait since {since}."),
        "outbox-stuck",
    ),
}
