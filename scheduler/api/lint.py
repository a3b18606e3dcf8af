"""The lint of a cluster's nodes over REST: what is wrong, where, and how to mend it."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queues.api.doors import Door
from scheduler.api.shapes import Shape
from scheduler.lint.findings import SEVERITIES, Finding
from scheduler.lint.run import lint
from scheduler.lint.versions import VersionSum, version_sums
from scheduler.selectors.lint import lint_sheet
from scheduler.services.nodes import cluster_of


class FindingShape(Shape):
    """One finding. commands: shell lines, for the first node where they are about one."""

    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=list(SEVERITIES))
    title = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()
    commands = serializers.ListField(child=serializers.CharField())
    numbers = serializers.DictField()
    count = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())


class VersionShape(Shape):
    """Nodes of a flavor with the same driver and CUDA."""

    flavor = serializers.CharField()
    driver = serializers.CharField(allow_null=True)
    cuda = serializers.CharField(allow_null=True)
    nodes = serializers.IntegerField()


class LintAnswer(Shape):
    """All findings, the gravest first."""

    cluster = serializers.CharField()
    findings = FindingShape(many=True)
    versions = VersionShape(many=True)


class Lint(Door):
    """What is wrong with a cluster's nodes."""

    required_scopes = {"read": "nodes:read"}
    serializer_class = LintAnswer

    @extend_schema(operation_id="clusters_lint", responses=LintAnswer)
    def get(self, request: Request, cluster: str) -> Response:
        """Judged now, from nodes as last observed."""
        sheet = lint_sheet(cluster_of(cluster))
        return Response(
            {
                "cluster": sheet.cluster,
                "findings": [finding_answer(each) for each in lint(sheet)],
                "versions": [_version(each) for each in version_sums(sheet)],
            }
        )


def finding_answer(finding: Finding) -> dict[str, Any]:
    """One finding, in the reader's language."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "title": str(finding.rule.title),
        "message": finding.message,
        "fix": finding.fix,
        "commands": finding.commands,
        "numbers": dict(finding.numbers),
        "count": len(finding.nodes),
        "nodes": list(finding.nodes),
    }


def _version(each: VersionSum) -> dict[str, Any]:
    return {
        "flavor": each.flavor,
        "driver": each.driver or None,
        "cuda": each.cuda or None,
        "nodes": each.nodes,
    }
