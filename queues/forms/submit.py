"""The submit form: few fields first, the rest under "more"; `payload()` is what the contract reads.

Empty fields are left out of the payload, so that the contract fills in the defaults and says where
they came from. Errors come back by JSON Pointer and are put beside the field (`FIELD_OF_POINTER`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django_stubs_ext import StrOrPromise

from controlplane.common.errors import ApplicationError
from queues.forms import texts
from queues.forms.fields import ReadField, SpanField, lines, whole, word
from queues.specs import PRIORITY_CLASSES, QueueOffer

Choices = Sequence[tuple[str, StrOrPromise]]
GPUS_OF_A_NODE = 8
USUAL_GRACE = "30s"


class SubmitForm(forms.Form):
    """A job as people ask for one. Multi-role jobs are the API's."""

    queue = forms.ChoiceField(label=_("Queue"))
    name = word(_("Name"), _("Left empty, it is taken from the image."))
    image = forms.CharField(
        label=_("Image"),
        max_length=512,
        widget=forms.TextInput(
            attrs={
                "class": "mono",
                "spellcheck": "false",
                "placeholder": "registry.example/train:1",
            }
        ),
    )
    command = ReadField(
        texts.read_command,
        label=_("Command"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text=_("Split as a shell would; left empty, the image's own runs."),
    )
    gpus = forms.IntegerField(
        label=_("GPUs in all"), help_text=_("Up to one node, or whole nodes.")
    )
    limit = SpanField(
        label=_("Time limit"),
        required=False,
        max_length=40,
        help_text=_("Such as 90m, 24h, 2d. A shorter one can start sooner."),
    )

    # More: placement.
    gpu_model = forms.ChoiceField(label=_("GPU model"), required=False)
    topology_level = forms.ChoiceField(label=_("Close together in one"), required=False)
    topology_mode = forms.ChoiceField(
        label=_("How strictly"),
        required=False,
        choices=[
            ("", _("preferred (default)")),
            ("preferred", _("preferred: else a wider level")),
            ("required", _("required: else it waits")),
        ],
    )
    replicas = whole(_("Replicas"), _("Instead of the split into whole nodes."))
    gpus_per_replica = whole(_("GPUs per replica"))
    min_replicas = whole(_("Fewest replicas"), _("Starts with fewer when not all fit: elastic."))
    tensor_parallel = whole(_("Tensor parallel"), _("Stays inside one NVLink domain."))
    min_cuda = word(_("Least CUDA"), placeholder="12.4")
    node_selector = lines(_("Node labels"), texts.read_pairs, _("NAME=value, one a line."))
    exclude_nodes = lines(_("Not on these nodes"), texts.read_words, "")

    # More: each replica.
    cpu_per_replica = word(_("CPU per replica"))
    memory_per_replica = word(_("Memory per replica"))
    shared_memory_mib = whole(_("Shared memory (MiB)"))
    preset = forms.ChoiceField(label=_("Preset"), required=False)
    working_dir = word(_("Working folder"), placeholder="/work")
    env = lines(_("Environment"), texts.read_pairs, _("NAME=value, one a line."))
    secret_env = lines(
        _("Environment from secrets"), texts.read_pairs, _("NAME=secret, one a line.")
    )
    image_pull_secret = forms.ChoiceField(label=_("Image pull secret"), required=False)
    volumes = lines(_("Volumes"), texts.read_volumes, _("claim:/path or claim:/path:ro."))

    # More: its course.
    priority = word(_("Priority"))
    preemptible = forms.BooleanField(
        label=_("May be preempted (else it runs only inside nominal quota)"),
        required=False,
        initial=True,
    )
    on_preemption = forms.ChoiceField(
        label=_("When preempted"),
        required=False,
        choices=[("", _("waits again (default)")), ("stop", _("ends"))],
    )
    max_restarts = whole(_("Restarts after own failures"))
    grace = SpanField(label=_("Grace when stopped"), required=False, max_length=40)
    checkpoint_interval = SpanField(
        label=_("Saves every"),
        required=False,
        max_length=40,
        help_text=_("A job that saves can cross maintenance and loses less."),
    )
    checkpoint_grace = SpanField(label=_("A save takes at most"), required=False, max_length=40)
    checkpoint_notice = forms.ChoiceField(
        label=_("Hears that it must leave by"),
        required=False,
        choices=[
            ("", _("SIGTERM (default)")),
            ("poll", _("asking Muster: saves once more and leaves")),
            ("file", _("the file /muster/notice: slow")),
        ],
    )
    stall_timeout = SpanField(label=_("Stalled after silence of"), required=False, max_length=40)
    on_stall = forms.ChoiceField(
        label=_("When stalled"),
        required=False,
        choices=[("", _("tell the owner (default)")), ("restart", _("start again"))],
    )
    begin_at = forms.DateTimeField(
        label=_("Not before"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    depends_on = lines(
        _("After these jobs succeed"), texts.read_words, _("Ids or external ids, one a line.")
    )
    external_id = word(_("External id"), _("Unique in the tenant, such as a pipeline's number."))
    labels = lines(_("Pod labels"), texts.read_pairs, _("NAME=value, one a line."))
    annotations = lines(_("Pod annotations"), texts.read_pairs, _("NAME=value, one a line."))

    def __init__(
        self, *args: Any, queues: Choices, offer: QueueOffer | None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.offer = offer
        self._choose("queue", queues)
        if offer is not None:
            self._offer(offer)

    def _choose(self, name: str, choices: Choices) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def _offer(self, offer: QueueOffer) -> None:
        """Choices of the chosen queue; what it does not offer cannot be picked."""
        models = [(flavor.model, flavor.model) for flavor in offer.flavors]
        levels = [(level, level) for level in (*offer.levels, "node")]
        lowest = offer.levels[-1] if offer.levels else _now("anywhere")
        self._choose("gpu_model", [("", _("any, in the queue's order")), *models])
        self._choose("topology_level", [("", f"{lowest} ({_now('default')})"), *levels])
        self._choose("preset", [("", _("none")), *((p, p) for p in sorted(offer.presets))])
        pulls = [(name, name) for name in sorted(offer.pull_secrets)]
        self._choose("image_pull_secret", [("", _("none")), *pulls])

    def payload(self) -> dict[str, Any]:
        """The job as the contract reads it; call only when the form is valid."""
        sent = self.cleaned_data
        tenant, _mark, queue = str(sent["queue"]).partition("/")
        job: dict[str, Any] = {
            "tenant": tenant,
            "queue": queue,
            "name": sent["name"] or texts.name_from_image(sent["image"]),
            "preemptible": sent["preemptible"],
        }
        job |= {key: sent[key] for key in _AS_THEY_ARE if sent[key] not in (None, "", [], {})}
        job |= {
            key: sent[field]
            for field, key in _RENAMED.items()
            if sent[field] not in (None, "", [], {})
        }
        return job | self._shape() | self._nested()

    def _shape(self) -> dict[str, Any]:
        """Total GPUs as one part of a node, or as whole nodes; explicit replicas win."""
        sent = self.cleaned_data
        replicas, each = sent["replicas"], sent["gpus_per_replica"]
        if each is None:
            each = self._each(sent["gpus"], replicas)
        if replicas is None:
            replicas = max(1, sent["gpus"] // each) if each else 1
        return {"replicas": replicas, "gpus_per_replica": each}

    def _each(self, gpus: int, replicas: int | None) -> int:
        if replicas:
            return gpus // replicas
        return gpus if gpus <= self.node_size else self.node_size

    @property
    def node_size(self) -> int:
        """GPUs of a whole node of the flavor that would be tried first."""
        offered = self.offer.flavors if self.offer else ()
        wanted = self.data.get("gpu_model") if self.is_bound else ""
        sizes = [f.gpus_per_node for f in offered if not wanted or f.model == wanted]
        return next((size for size in sizes if size), GPUS_OF_A_NODE)

    def _nested(self) -> dict[str, Any]:
        sent = self.cleaned_data
        found: dict[str, Any] = {}
        if sent["gpu_model"]:
            found["gpu_model"] = [sent["gpu_model"]]
        topology = {"level": sent["topology_level"], "mode": sent["topology_mode"]}
        if any(topology.values()):
            found["topology"] = {key: value for key, value in topology.items() if value}
        saves = {
            "interval_seconds": sent["checkpoint_interval"],
            "grace_seconds": sent["checkpoint_grace"],
            "notice": sent["checkpoint_notice"] or None,
        }
        if any(value is not None for value in saves.values()):
            found["checkpoint"] = {key: v for key, v in saves.items() if v is not None}
        if sent["begin_at"]:
            found["begin_at"] = sent["begin_at"].isoformat()
        if sent["priority"]:
            text = str(sent["priority"]).strip()
            found["priority"] = int(text) if text.isascii() and text.isdecimal() else text
        if sent["depends_on"]:
            found["depends_on"] = [
                {"job" if word.startswith("job_") else "external_id": word}
                for word in sent["depends_on"]
            ]
        return found

    def clean(self) -> dict[str, Any]:
        """The split into whole nodes, checked where it is entered."""
        sent: dict[str, Any] = super().clean() or {}
        gpus, each = sent.get("gpus"), sent.get("gpus_per_replica")
        replicas = sent.get("replicas")
        if gpus is None or (each is not None and replicas is not None):
            return sent
        size = self.node_size
        if gpus < 1:
            self.add_error("gpus", ValidationError(_("must be at least 1")))
        elif replicas and gpus % replicas:
            self.add_error("gpus", _uneven(gpus, replicas))
        elif each and gpus % each:
            self.add_error("gpus", _uneven(gpus, each))
        elif not replicas and not each and gpus > size and gpus % size:
            less, more = gpus // size * size, (gpus // size + 1) * size
            text = _now("{gpus} is not a number of whole nodes of {size}: take {less} or {more}.")
            self.add_error("gpus", text.format(gpus=gpus, size=size, less=less, more=more))
        return sent

    def add_refusal(self, error: ApplicationError) -> None:
        """What the contract refused, each error at its field."""
        for found in error.errors:
            field, rest = field_of(found.pointer)
            known = field if field in self.fields else None
            self.add_error(known, f"{rest}: {found.message}" if rest else found.message)
        if not error.errors:
            self.add_error(None, error.sentence)


def _uneven(gpus: int, parts: int) -> ValidationError:
    return ValidationError(_now("{gpus} cannot be divided by {n}.").format(gpus=gpus, n=parts))


_AS_THEY_ARE = (
    "image",
    "command",
    "min_replicas",
    "tensor_parallel",
    "min_cuda",
    "node_selector",
    "exclude_nodes",
    "cpu_per_replica",
    "memory_per_replica",
    "shared_memory_mib",
    "preset",
    "working_dir",
    "env",
    "secret_env",
    "image_pull_secret",
    "volumes",
    "on_preemption",
    "max_restarts",
    "on_stall",
    "external_id",
    "labels",
    "annotations",
)
_RENAMED: Mapping[str, str] = {
    "limit": "max_runtime_seconds",
    "grace": "grace_seconds",
    "stall_timeout": "stall_timeout_seconds",
}
FIELD_OF_POINTER: Mapping[str, str] = {
    "/tenant": "queue",
    "/max_runtime_seconds": "limit",
    "/grace_seconds": "grace",
    "/stall_timeout_seconds": "stall_timeout",
    "/topology/level": "topology_level",
    "/topology/mode": "topology_mode",
    "/checkpoint/interval_seconds": "checkpoint_interval",
    "/checkpoint/grace_seconds": "checkpoint_grace",
    "/checkpoint/notice": "checkpoint_notice",
}


def field_of(pointer: str) -> tuple[str, str]:
    """The field that a pointer belongs to, and what is left of the pointer (a key or an index)."""
    if pointer in FIELD_OF_POINTER:
        return FIELD_OF_POINTER[pointer], ""
    first, _mark, rest = pointer.strip("/").partition("/")
    return FIELD_OF_POINTER.get(f"/{first}", first), _place(rest)


def _place(rest: str) -> str:
    """What is left of a pointer as people read it: the line of a list, or the key with its escapes undone."""
    first = rest.partition("/")[0]
    if first.isdecimal():
        return _now("line {n}").format(n=int(first) + 1)
    return rest.replace("~1", "/").replace("~0", "~")


def initial_from_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Fields for a clone, from a job as the API answers it. One role only; a past begin is left out."""
    checkpoint = job.get("checkpoint") or {}
    topology = job.get("topology") or {}
    models: Iterable[str] = job.get("gpu_model") or [""]
    replicas, each = job.get("replicas") or 1, job.get("gpus_per_replica") or 1
    return {
        "queue": f"{job['tenant']}/{job['queue']}",
        "name": job["name"],
        "image": job.get("image", ""),
        "command": texts.words_text([*(job.get("command") or []), *(job.get("args") or [])]),
        "gpus": replicas * each,
        "replicas": replicas if each < GPUS_OF_A_NODE and replicas > 1 else None,
        "gpus_per_replica": each if each < GPUS_OF_A_NODE and replicas > 1 else None,
        "limit": texts.span_text(job.get("max_runtime_seconds")),
        "gpu_model": next(iter(models)),
        "topology_level": topology.get("level") or "",
        "topology_mode": topology.get("mode") or "",
        "min_replicas": job.get("min_replicas") if job.get("min_replicas") != replicas else None,
        "tensor_parallel": job.get("tensor_parallel") if job.get("tensor_parallel") != 1 else None,
        "env": texts.pairs_text(job.get("env") or {}),
        "secret_env": texts.pairs_text(job.get("secret_env") or {}),
        "volumes": texts.volumes_text(job.get("volumes") or []),
        "annotations": texts.pairs_text(job.get("annotations") or {}),
        "labels": texts.pairs_text(job.get("labels") or {}),
        "node_selector": texts.pairs_text(job.get("node_selector") or {}),
        "exclude_nodes": "\n".join(job.get("exclude_nodes") or []),
        "priority": job.get("priority")
        if job.get("priority") != PRIORITY_CLASSES["normal"]
        else "",
        "preemptible": job.get("preemptible", True),
        "on_preemption": "stop" if job.get("on_preemption") == "stop" else "",
        "max_restarts": job.get("max_restarts") or None,
        "checkpoint_interval": texts.span_text(checkpoint.get("interval_seconds")),
        "checkpoint_grace": texts.span_text(checkpoint.get("grace_seconds")),
        "checkpoint_notice": texts.unless_usual(checkpoint.get("notice"), "signal"),
        "stall_timeout": texts.span_text(job.get("stall_timeout_seconds")),
        "on_stall": texts.unless_usual(job.get("on_stall"), "alert"),
        "working_dir": job.get("working_dir") or "",
        "cpu_per_replica": job.get("cpu_per_replica") or "",
        "memory_per_replica": job.get("memory_per_replica") or "",
        "shared_memory_mib": job.get("shared_memory_mib"),
        "grace": texts.unless_usual(texts.span_text(job.get("grace_seconds")), USUAL_GRACE),
        "preset": job.get("preset") or "",
        "image_pull_secret": job.get("image_pull_secret") or "",
        "min_cuda": job.get("min_cuda") or "",
    }
