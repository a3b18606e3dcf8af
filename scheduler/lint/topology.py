"""Checks of topology labels: there, unique, agreeing, and domains of even size. Pure."""

from collections import Counter
from collections.abc import Iterator

from scheduler.lint.conventions import likeliest
from scheduler.lint.devices import names_where
from scheduler.lint.findings import Finding, found
from scheduler.lint.sheet import CLIQUE_LABEL, Sheet, by_domain

# The same thing in two generations of labels: old and new.
TWINS = (
    ("network.topology.nvidia.com/leaf", "fabric.topograph.run/tier-0"),
    ("network.topology.nvidia.com/spine", "fabric.topograph.run/tier-1"),
    ("network.topology.nvidia.com/accelerator", "accelerator.topograph.run/domain"),
)
# Fewer domains than this say nothing of what is usual.
FEWEST_DOMAINS = 3


def levels(sheet: Sheet) -> Iterator[Finding]:
    """Levels that could be had and are not."""
    if not sheet.levels:
        convention = likeliest(sheet.gpu_nodes)
        if convention is not None:
            label = ",".join(label for _name, label in convention.levels)
            yield found("no_levels", convention=convention.name, label=label)
    wide = names_where(sheet.gpu_nodes, lambda n: CLIQUE_LABEL in n.labels)
    if wide and all(level != "nvlink" for level, _label in sheet.levels):
        yield found("clique_unused", wide)


def missing(sheet: Sheet) -> Iterator[Finding]:
    """GPU nodes without the label of a level. NVLink across nodes is an exception: most nodes have none."""
    for level, label in sheet.levels:
        if level == "nvlink":
            continue
        if without := [node.name for node in sheet.gpu_nodes if not node.labels.get(label)]:
            yield found("label_missing", without, level=level, label=label)


def clashes(sheet: Sheet) -> Iterator[Finding]:
    """Domains that lie under two parents: a name used twice, or a node labelled wrongly."""
    for (outer, outer_label), (inner, inner_label) in zip(
        sheet.levels, sheet.levels[1:], strict=False
    ):
        for domain, nodes in sorted(by_domain(sheet.gpu_nodes, inner).items()):
            parents = Counter(n.domains[outer] for n in nodes if n.domains.get(outer))
            if len(parents) < 2:
                continue
            usual = max(parents, key=lambda name: (parents[name], name))
            odd = [n.name for n in nodes if n.domains.get(outer, usual) != usual]
            yield found(
                "label_clash",
                odd,
                level=inner,
                domain=domain,
                parents=", ".join(sorted(parents)),
                label=inner_label,
                parent_label=outer_label,
            )


def twins(sheet: Sheet) -> Iterator[Finding]:
    """Nodes whose two generations of labels name different places."""
    for old, new in TWINS:
        differing = [
            n
            for n in sheet.gpu_nodes
            if n.labels.get(old) and n.labels.get(new) and n.labels[old] != n.labels[new]
        ]
        if differing:
            first = differing[0].labels
            names = [node.name for node in differing]
            yield found("label_stale", names, one=first[new], other=first[old], old_label=old)


def uneven(sheet: Sheet) -> Iterator[Finding]:
    """Domains of the lowest level that are smaller or larger than most, nodes of one flavor compared."""
    if not sheet.levels:
        return
    level, label = sheet.levels[-1]
    for flavor in sorted({n.flavor for n in sheet.gpu_nodes if n.flavor}):
        alike = [n for n in sheet.gpu_nodes if n.flavor == flavor]
        domains = by_domain(alike, level)
        sizes = Counter(len(nodes) for nodes in domains.values())
        if len(domains) < FEWEST_DOMAINS:
            continue
        usual, most = sizes.most_common(1)[0]
        if most * 2 <= len(domains):
            continue  # no size is the usual one
        for domain, nodes in sorted(domains.items()):
            if len(nodes) != usual:
                names = [node.name for node in nodes]
                numbers = {"level": level, "domain": domain, "label": label}
                yield found("domain_uneven", names, size=len(nodes), usual=usual, **numbers)
