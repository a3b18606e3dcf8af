"""Where a job may run: models, sharing, CUDA, preset, node labels. Pure. Called by `jobs`."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from queues.contract import names
from queues.contract.context import Context
from queues.contract.reading import Fault, Reader, Rule, listed
from queues.specs import FlavorOffer

SHARING_NOT_ENABLED = "sharing_not_enabled"


@dataclass(frozen=True, slots=True)
class Places:
    """The part of a job that says where it may run."""

    gpu_model: tuple[str, ...]
    min_cuda: str
    preset: str
    preset_id: int | None
    node_selector: dict[str, str]
    exclude_nodes: tuple[str, ...]


def read_places(job: Reader, context: Context) -> Places:
    """Read them all, and settle `context.flavors`, the candidates in order of preference."""
    models = _read_models(job, context)
    _read_sharing(job)
    preset, preset_id = _read_preset(job, context)
    return Places(
        gpu_model=models,
        min_cuda=job.text("min_cuda", longest=8, rule=names.cuda_version),
        preset=preset,
        preset_id=preset_id,
        node_selector=job.pairs(
            "node_selector", most=32, key_rule=names.label_key, value_rule=names.label_value
        ),
        exclude_nodes=job.texts("exclude_nodes", most=1000, longest=253, rule=names.object_name),
    )


def _read_models(job: Reader, context: Context) -> tuple[str, ...]:
    offered = context.offer.flavors if context.offer else ()
    rule = _known_model(offered) if context.offer else None
    models = job.texts("gpu_model", most=16, longest=63, rule=rule)
    if not models:
        context.flavors = offered
        if not job.has("gpu_model"):
            context.note_default(job.at("gpu_model"), "queue")
        return ()
    # As the job lists its models, and within one model as the queue lists its flavors.
    context.flavors = tuple(
        flavor for model in dict.fromkeys(models) for flavor in offered if flavor.model == model
    )
    return tuple(dict.fromkeys(models))


def _known_model(offered: tuple[FlavorOffer, ...]) -> Rule:
    models = tuple(dict.fromkeys(flavor.model for flavor in offered))

    def rule(value: str) -> Fault | None:
        if value in models:
            return None
        return Fault(
            "unknown_model",
            _("is not a GPU model that this queue allows; it allows {models}").format(
                models=listed(models)
            ),
        )

    return rule


def _read_sharing(job: Reader) -> None:
    sharing = job.text("sharing", "exclusive", longest=40)
    if sharing != "exclusive":
        job.fault(
            "sharing",
            SHARING_NOT_ENABLED,
            _("must be “exclusive”: shared GPUs are not enabled here"),
        )


def _read_preset(job: Reader, context: Context) -> tuple[str, int | None]:
    name = job.text("preset", longest=63)
    if not name or context.offer is None:
        return name, None
    found = context.presets.get(name)
    if found is None:
        shown = listed(sorted(context.presets)) or "–"
        job.fault(
            "preset",
            "unknown_preset",
            _("is not a preset of this queue; it has {presets}").format(presets=shown),
        )
        return name, None
    preset_id, flavor_id = found
    if flavor_id is not None and not any(flavor.id == flavor_id for flavor in context.flavors):
        job.fault(
            "preset", "wrong_flavor", _("is for another GPU model than those that the job may use")
        )
    return name, preset_id
