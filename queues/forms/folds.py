"""The folds of the submit form: what stands in each, and in words what holds where nothing is filled in."""

from dataclasses import dataclass

from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django_stubs_ext import StrOrPromise

from queues.forms import texts
from queues.forms.submit import SubmitForm
from queues.quantities import cpu_text, memory_text
from queues.specs import PRIORITY_CLASSES, QueueOffer


@dataclass(frozen=True, slots=True)
class Section:
    """One fold of the form: its fields, in words what holds when nothing is filled in, and from where."""

    title: StrOrPromise
    names: tuple[str, ...]
    said: str
    origin: str

    def is_open(self, form: SubmitForm) -> bool:
        """Whether something in it was filled in or is wrong."""
        return any(form[n].errors or (form[n].value() and n != "preemptible") for n in self.names)


def sections(offer: QueueOffer | None) -> list[Section]:
    """The folds, with the defaults of this queue."""
    lowest = offer.levels[-1] if offer and offer.levels else _now("anywhere")
    cluster = offer.cluster if offer else ""
    flavor = offer.flavors[0] if offer and offer.flavors else None
    size = ""
    if flavor is not None:
        size = _now("{cpu} CPU and {memory} for each GPU").format(
            cpu=cpu_text(flavor.default_cpu_millis_per_gpu),
            memory=memory_text(flavor.default_memory_mib_per_gpu),
        )
    return [
        Section(
            _("Placement"),
            (
                "gpu_model",
                "topology_level",
                "topology_mode",
                "tensor_parallel",
                "replicas",
                "gpus_per_replica",
                "min_replicas",
                "min_cuda",
                "node_selector",
                "exclude_nodes",
            ),
            _now("one {level}, preferred").format(level=lowest),
            _now("from cluster {name}").format(name=cluster),
        ),
        Section(
            _("Each replica"),
            (
                "cpu_per_replica",
                "memory_per_replica",
                "shared_memory_mib",
                "preset",
                "working_dir",
                "image_pull_secret",
                "env",
                "secret_env",
                "volumes",
            ),
            size,
            _now("from flavor {name}").format(name=flavor.name) if flavor else "",
        ),
        Section(
            _("Priority, preemption, restarts"),
            (
                "priority",
                "on_preemption",
                "max_restarts",
                "grace",
                "checkpoint_interval",
                "checkpoint_grace",
                "checkpoint_notice",
                "stall_timeout",
                "on_stall",
                "preemptible",
            ),
            _now("normal priority, may be preempted, no restarts"),
            _now("default"),
        ),
        Section(
            _("Order and names"),
            ("begin_at", "depends_on", "external_id", "labels", "annotations"),
            _now("as soon as possible"),
            _now("default"),
        ),
    ]


def priority_help(offer: QueueOffer | None) -> str:
    """What may be asked for: classes, and the range of this queue."""
    classes = ", ".join(f"{name} {value}" for name, value in PRIORITY_CLASSES.items())
    if offer is None:
        return classes
    text = _now("{classes}; from {least} to {most} here")
    return text.format(classes=classes, least=offer.lowest_priority, most=offer.highest_priority)


def limit_help(offer: QueueOffer | None) -> str:
    """The queue's default and longest time limit."""
    if offer is None:
        return ""
    default, longest = offer.default_max_runtime_seconds, offer.longest_max_runtime_seconds
    if default is None and longest is None:
        return _now("None from queue {queue}.").format(queue=offer.queue)
    text = _now("Left empty: {default}, from queue {queue}.")
    if longest is not None:
        text = _now("Left empty: {default}, at most {longest}, from queue {queue}.")
    return text.format(
        default=texts.span_text(default or longest),
        longest=texts.span_text(longest),
        queue=offer.queue,
    )
