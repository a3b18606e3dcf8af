"""Maintenance windows, each time they happen, drains, labels wanted on nodes."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0006_stops_and_checkpoints"),
        ("scheduler", "0005_cordon_sources"),
    ]

    operations = [
        migrations.CreateModel(
            name="MaintenanceWindow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("title", models.CharField(max_length=200)),
                (
                    "kind",
                    models.CharField(
                        choices=[("maintenance", "maintenance"), ("reserved", "reserved")],
                        max_length=12,
                    ),
                ),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("rrule", models.CharField(blank=True, max_length=300)),
                ("nodes", models.JSONField(default=dict)),
                (
                    "crossing",
                    models.CharField(
                        choices=[
                            ("checkpointable", "jobs that write checkpoints"),
                            ("never", "none"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "running_jobs",
                    models.CharField(
                        choices=[
                            ("finish", "may finish"),
                            ("checkpoint", "leave after a checkpoint"),
                            ("evict", "leave at the start"),
                        ],
                        max_length=12,
                    ),
                ),
                ("latest_at", models.DateTimeField(blank=True, null=True)),
                ("notice_minutes", models.PositiveIntegerField(default=60)),
                ("admits", models.JSONField(blank=True, default=dict)),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField()),
                ("cancelled_by", models.CharField(blank=True, max_length=150)),
                ("cancelled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="windows",
                        to="queues.cluster",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("latest_at", models.DateTimeField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("planned", "planned"),
                            ("noticed", "announced"),
                            ("draining", "draining"),
                            ("open", "open"),
                            ("checking", "checking nodes"),
                            ("over", "over"),
                            ("cancelled", "cancelled"),
                        ],
                        default="planned",
                        max_length=10,
                    ),
                ),
                ("nodes", models.JSONField(blank=True, default=list)),
                ("expected_empty_at", models.DateTimeField(blank=True, null=True)),
                ("noticed_at", models.DateTimeField(blank=True, null=True)),
                ("draining_at", models.DateTimeField(blank=True, null=True)),
                ("empty_at", models.DateTimeField(blank=True, null=True)),
                ("opened_at", models.DateTimeField(blank=True, null=True)),
                ("checking_at", models.DateTimeField(blank=True, null=True)),
                ("over_at", models.DateTimeField(blank=True, null=True)),
                ("checks", models.JSONField(blank=True, default=dict)),
                ("held", models.JSONField(blank=True, default=dict)),
                (
                    "window",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="occurrences",
                        to="scheduler.maintenancewindow",
                    ),
                ),
            ],
            options={
                "ordering": ["starts_at"],
            },
        ),
        migrations.CreateModel(
            name="WantedLabel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=317)),
                ("value", models.CharField(blank=True, max_length=63, null=True)),
                ("by", models.CharField(max_length=150)),
                ("since", models.DateTimeField()),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="wanted_labels",
                        to="scheduler.node",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Drain",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("reason", models.TextField()),
                (
                    "running_jobs",
                    models.CharField(
                        choices=[
                            ("finish", "may finish"),
                            ("checkpoint", "leave after a checkpoint"),
                            ("evict", "leave at the start"),
                        ],
                        max_length=12,
                    ),
                ),
                ("latest_at", models.DateTimeField(blank=True, null=True)),
                ("by", models.CharField(max_length=150)),
                ("since", models.DateTimeField()),
                ("expected_empty_at", models.DateTimeField(blank=True, null=True)),
                ("empty_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("ended_by", models.CharField(blank=True, max_length=150)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drains",
                        to="scheduler.node",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("node",),
                        name="drain_one_open_per_node",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="maintenancewindow",
            index=models.Index(
                condition=models.Q(("cancelled_at__isnull", True)),
                fields=["cluster"],
                name="window_in_force",
            ),
        ),
        migrations.AddConstraint(
            model_name="maintenancewindow",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends_at__gt", models.F("starts_at"))),
                name="window_ends_after_start",
            ),
        ),
        migrations.AddConstraint(
            model_name="maintenancewindow",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["maintenance", "reserved"])),
                name="window_kind_known",
            ),
        ),
        migrations.AddIndex(
            model_name="occurrence",
            index=models.Index(fields=["state", "starts_at"], name="occurrence_by_state"),
        ),
        migrations.AddConstraint(
            model_name="occurrence",
            constraint=models.UniqueConstraint(
                fields=("window", "starts_at"), name="occurrence_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="occurrence",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        ["planned", "noticed", "draining", "open", "checking", "over", "cancelled"],
                    )
                ),
                name="occurrence_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="wantedlabel",
            constraint=models.UniqueConstraint(fields=("node", "key"), name="wanted_label_once"),
        ),
    ]
