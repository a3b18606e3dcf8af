"""Forecasts of starts and what came of them."""


import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queues', '0008_attempt_by_token'),
    ]

    operations = [
        migrations.CreateModel(
            name='Forecast',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('attempt', models.PositiveIntegerField()),
                ('made_at', models.DateTimeField()),
                ('planned_at', models.DateTimeField()),
                ('p50', models.DateTimeField()),
                ('p90', models.DateTimeField()),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='forecasts', to='queues.cluster')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='forecasts', to='queues.job')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('started_at__isnull', False)), fields=['cluster', '-started_at'], name='forecast_by_start'), models.Index(fields=['made_at'], name='forecast_by_age')],
                'constraints': [models.UniqueConstraint(fields=('job', 'attempt'), name='forecast_once_per_wait')],
            },
        ),
    ]
