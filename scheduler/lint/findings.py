"""What a check answers: how grave, what, which nodes, how to mend it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Words = str | Promise
ERROR, WARNING, ADVICE = "error", "warning", "advice"
GRAVITY: Mapping[str, int] = {ERROR: 0, WARNING: 1, ADVICE: 2}
SEVERITIES: Mapping[str, Words] = {
    ERROR: _("error"),
    WARNING: _("warning"),
    ADVICE: _("advice"),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. sentence: filled with the finding's numbers, as are the commands.

    A command that holds {node} is meant for each node; shown for the first.
    """

    severity: str
    title: Words
    sentence: Words
    fix: Words
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. nodes: all affected, by name; numbers fill the sentence."""

    code: str
    nodes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> Rule:
        """What is known of its kind."""
        return RULES[self.code]

    @property
    def severity(self) -> str:
        """error, warning or advice."""
        return self.rule.severity

    @property
    def message(self) -> str:
        """The sentence, in the reader's language."""
        return str(self.rule.sentence).format_map(self._filled)

    @property
    def fix(self) -> str:
        """What to do, in the reader's language."""
        return str(self.rule.fix).format_map(self._filled)

    @property
    def commands(self) -> list[str]:
        """Lines for a shell, for the first node where they are about one."""
        return [line.format_map(self._filled) for line in self.rule.commands]

    @property
    def _filled(self) -> dict[str, Any]:
        shown = self.nodes[0] if self.nodes else "NODE"
        return {"node": shown} | dict(self.numbers)


def found(code: str, nodes: Sequence[str] = (), **numbers: Any) -> Finding:
    """A finding about these nodes."""
    return Finding(code, tuple(nodes), numbers)


_PLUGIN_POD = (
    "kubectl delete pods -n gpu-operator -l app=nvidia-device-plugin-daemonset "
    "--field-selector spec.nodeName={node}"
)

RULES: Mapping[str, Rule] = {
    "gpu_unseen": Rule(
        ERROR,
        _("GPUs that Kubernetes cannot see"),
        _("There is a GPU on the PCI bus, or a driver, and no GPU resource."),
        _(
            "The device plugin does not run there. A pod that is bound to such a node would start without a GPU, "
            "so Muster keeps off. Let the operator deploy the plugin, and look at its pods."
        ),
        (
            "kubectl label node {node} nvidia.com/gpu.deploy.device-plugin=true --overwrite",
            "kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName={node}",
        ),
    ),
    "gpu_none_offered": Rule(
        ERROR,
        _("No GPU offered"),
        _("The GPU resource is there, and offers none."),
        _(
            "The device plugin has stopped or finds every GPU unhealthy. Read its log, then restart it."
        ),
        (
            "kubectl logs -n gpu-operator -l app=nvidia-device-plugin-daemonset --tail=50",
            _PLUGIN_POD,
        ),
    ),
    "gpu_lost": Rule(
        ERROR,
        _("Fewer GPUs than built in"),
        _("Fewer GPUs are offered than are built in: {missing} are missing."),
        _(
            "The device plugin took a GPU for unhealthy and never takes that back by itself. Mend or reset the GPU, "
            "then restart the plugin on the empty node."
        ),
        ("kubectl describe node {node}", _PLUGIN_POD),
    ),
    "count_differs": Rule(
        WARNING,
        _("Discovery and kubelet disagree"),
        _("Feature discovery counts other GPUs than the kubelet has."),
        _("One of the two is out of date. Restart feature discovery on the node and compare."),
        (
            "kubectl delete pods -n gpu-operator -l app=gpu-feature-discovery "
            "--field-selector spec.nodeName={node}",
        ),
    ),
    "driver_unknown": Rule(
        WARNING,
        _("Driver unknown"),
        _("These GPU nodes say nothing of their driver."),
        _(
            "Feature discovery does not run there. Jobs that ask for a least CUDA version are kept off these nodes."
        ),
        ("kubectl get pods -n gpu-operator -l app=gpu-feature-discovery -o wide",),
    ),
    "driver_mixed": Rule(
        WARNING,
        _("Mixed drivers in one domain"),
        _("Part of {domain} runs the driver {odd}, the rest {usual}."),
        _(
            "A gang in this domain runs on both. NCCL may fail or fall back; bring the nodes to one driver in a "
            "maintenance window."
        ),
        ("kubectl get nodes -L nvidia.com/cuda.driver-version.full,{label}",),
    ),
    "driver_upgrading": Rule(
        WARNING,
        _("Driver upgrade under way"),
        _("The driver upgrade state is {state}."),
        _("Nothing is to be placed there until the state is upgrade-done."),
        ("kubectl get node {node} -L nvidia.com/gpu-driver-upgrade-state",),
    ),
    "driver_upgrade_failed": Rule(
        ERROR,
        _("Driver upgrade failed"),
        _("The operator could not upgrade the driver."),
        _("Read the log of the driver's pod; when the cause is gone, let the operator try again."),
        (
            "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --tail=50",
            "kubectl label node {node} nvidia.com/gpu-driver-upgrade-state=upgrade-required --overwrite",
        ),
    ),
    "mig_changing": Rule(
        WARNING,
        _("MIG layout is being changed"),
        _("The MIG layout is {state}."),
        _("Wait until the state is success; the layout only changes while no GPU is in use."),
        ("kubectl get node {node} -L nvidia.com/mig.config,nvidia.com/mig.config.state",),
    ),
    "mig_failed": Rule(
        ERROR,
        _("MIG layout failed"),
        _("The MIG layout that was asked for could not be made."),
        _("Empty the node, then ask for the layout again."),
        (
            "kubectl logs -n gpu-operator -l app=nvidia-mig-manager --tail=50",
            "kubectl label node {node} nvidia.com/mig.config=all-disabled --overwrite",
        ),
    ),
    "mig_invalid": Rule(
        ERROR,
        _("MIG layout is inconsistent"),
        _("The GPUs of one node have different MIG layouts, so none is offered."),
        _("Under the strategy “single” all GPUs of a node need the same layout."),
        ("kubectl label node {node} nvidia.com/mig.config=all-disabled --overwrite",),
    ),
    "mig_enabled": Rule(
        ADVICE,
        _("GPUs cut by MIG"),
        _("The GPUs are cut into MIG devices."),
        _("Muster places whole GPUs only: these nodes take no jobs until MIG is switched off."),
        ("kubectl label node {node} nvidia.com/mig.config=all-disabled --overwrite",),
    ),
    "time_sliced": Rule(
        WARNING,
        _("Shared GPUs"),
        _("Each GPU is handed out several times ({strategy})."),
        _(
            "Two jobs would share one GPU and its memory. Remove the sharing configuration, or leave these models "
            "out of every flavor."
        ),
        ("kubectl label node {node} nvidia.com/device-plugin.config-",),
    ),
    "model_unknown": Rule(
        WARNING,
        _("GPU model without a flavor"),
        _("No flavor names the model {model}: these nodes take no jobs."),
        _("Make a flavor for the model, then give tenants quota of it."),
        ("kubectl get nodes -l nvidia.com/gpu.product={model}",),
    ),
    "flavor_empty": Rule(
        ADVICE,
        _("Flavor without nodes"),
        _("No node has the model {model} of the flavor {flavor}."),
        _(
            "Check the model's spelling against the node label, or take the flavor out of quotas and queues."
        ),
        ("kubectl get nodes -L nvidia.com/gpu.product",),
    ),
    "no_levels": Rule(
        WARNING,
        _("No topology levels"),
        _("The cluster has no levels, though its nodes bear labels of {convention}."),
        _("Choose that convention for the levels: gangs are then placed close together."),
        ("kubectl get nodes -L {label}",),
    ),
    "label_missing": Rule(
        WARNING,
        _("Topology label missing"),
        _("The label {label} of the level {level} is missing."),
        _(
            "Muster takes them for far from everything: no gang that asks for one {level} lands there."
        ),
        ("kubectl label node {node} {label}=NAME",),
    ),
    "label_clash": Rule(
        ERROR,
        _("Domain in two places"),
        _("{level} {domain} has nodes under {parents}."),
        _(
            "Names of a level must be unique, or a node's label is wrong. Two racks of one name are taken for one."
        ),
        ("kubectl get nodes -l {label}={domain} -L {parent_label}",),
    ),
    "label_stale": Rule(
        WARNING,
        _("Two conventions disagree"),
        _("One convention says {one}, another {other}."),
        _(
            "One generation of labels is left over. Remove the old labels, or run the labeller again."
        ),
        ("kubectl label node {node} {old_label}-",),
    ),
    "domain_uneven": Rule(
        ADVICE,
        _("Uneven domains"),
        _("{level} {domain} has {size} nodes; most have {usual}."),
        _(
            "Right for a rack at the end of the row. Otherwise a node is missing or wrongly labelled."
        ),
        ("kubectl get nodes -l {label}={domain}",),
    ),
    "clique_unused": Rule(
        ADVICE,
        _("NVLink domains not used"),
        _("These nodes share NVLink with others, and no level speaks of it."),
        _(
            "Add the level nvlink with the label nvidia.com/gpu.clique, so that tensor-parallel groups stay inside."
        ),
        ("kubectl get nodes -L nvidia.com/gpu.clique",),
    ),
    "no_telemetry": Rule(
        WARNING,
        _("No telemetry"),
        _("There is no exporter: the health of these GPUs is unknown."),
        _("Let the operator deploy dcgm-exporter there. Nothing is taken out for this alone."),
        ("kubectl label node {node} nvidia.com/gpu.deploy.dcgm-exporter=true --overwrite",),
    ),
    "kept_off": Rule(
        ADVICE,
        _("Kept off by a taint"),
        _("They bear the taint {taint}, which jobs do not tolerate."),
        _("Remove it when the nodes are meant for Muster, or write the toleration into a preset."),
        ("kubectl taint node {node} {taint}-",),
    ),
    "visible_devices": Rule(
        ADVICE,
        _("NVIDIA_VISIBLE_DEVICES=all"),
        _(
            "Images may set NVIDIA_VISIBLE_DEVICES=all and see every GPU of a node. Nodes do not say if they allow it."
        ),
        _(
            "Muster refuses the variable and empties it in pods without GPUs, but pods of others can still use it. "
            "Switch it off in the container toolkit; the first line shows how it is set."
        ),
        (
            "kubectl get clusterpolicies.nvidia.com -o jsonpath='{{.items[*].spec.toolkit.env}}'",
            "kubectl patch clusterpolicies.nvidia.com cluster-policy --type merge -p "
            '\'{{"spec":{{"toolkit":{{"env":[{{"name":'
            '"ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED","value":"false"}}]}}}}}}\'',
        ),
    ),
}
