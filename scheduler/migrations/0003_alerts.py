"""Alerts: one row for what is wrong, while it is."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0005_refused_by_kubernetes"),
        ("scheduler", "0002_initial"),
        ("tenants", "0002_outbox"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=400)),
                ("kind", models.CharField(max_length=40)),
                (
                    "severity",
                    models.CharField(
                        choices=[
                            ("info", "for information"),
                            ("warning", "warning"),
                            ("critical", "critical"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("acknowledged", "acknowledged"),
                            ("silenced", "silenced"),
                            ("resolved", "resolved"),
                        ],
                        default="open",
                        max_length=12,
                    ),
                ),
                ("node", models.CharField(blank=True, max_length=253)),
                ("gpu", models.CharField(blank=True, max_length=80)),
                ("job", models.CharField(blank=True, max_length=40)),
                ("numbers", models.JSONField(default=dict)),
                ("detail", models.TextField(blank=True)),
                ("count", models.PositiveIntegerField(default=1)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
                ("acknowledged_by", models.CharField(blank=True, max_length=150)),
                ("acknowledged_at", models.DateTimeField(blank=True, null=True)),
                ("note", models.TextField(blank=True)),
                ("silenced_by", models.CharField(blank=True, max_length=150)),
                ("silenced_until", models.DateTimeField(blank=True, null=True)),
                ("resolved_by", models.CharField(blank=True, max_length=150)),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                ("tellings", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="queues.cluster",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["key", "-id"], name="alert_by_key"),
                    models.Index(fields=["state", "-id"], name="alert_by_state"),
                    models.Index(fields=["tenant", "-id"], name="alert_by_tenant"),
                    models.Index(fields=["resolved_at"], name="alert_by_end"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "resolved"), _negated=True),
                        fields=("key",),
                        name="alert_once_unresolved",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("severity__in", ["info", "warning", "critical"])),
                        name="alert_severity_known",
                    ),
                ],
            },
        ),
    ]
