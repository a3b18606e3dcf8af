"""What people and their systems are told: the outbox, its endpoints, who wants mail."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='MailChoice',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='mail_choice', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('alerts', models.CharField(choices=[('none', 'none'), ('critical', 'critical ones'), ('warning', 'warnings and critical ones'), ('info', 'all')], default='none', max_length=8)),
            ],
        ),
        migrations.CreateModel(
            name='WebhookEndpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.URLField(max_length=500)),
                ('description', models.CharField(blank=True, max_length=120)),
                ('kinds', models.JSONField(default=list)),
                ('encrypted_secret', models.BinaryField()),
                ('active', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField()),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='webhook_endpoints', to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='OutboxMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('way', models.CharField(choices=[('mail', 'mail'), ('webhook', 'webhook')], max_length=8)),
                ('kind', models.CharField(max_length=64)),
                ('message_id', models.CharField(max_length=40, unique=True)),
                ('dedupe_key', models.CharField(max_length=200, unique=True)),
                ('subject', models.CharField(blank=True, max_length=200)),
                ('body', models.TextField(blank=True)),
                ('payload', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField()),
                ('next_attempt_at', models.DateTimeField(blank=True, db_index=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('failed_at', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.CharField(blank=True, max_length=200)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('endpoint', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='tenants.webhookendpoint')),
            ],
            options={
                'indexes': [models.Index(fields=['endpoint', '-id'], name='outbox_by_endpoint')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('endpoint__isnull', True), ('user__isnull', False), ('way', 'mail')), models.Q(('endpoint__isnull', False), ('user__isnull', True), ('way', 'webhook')), _connector='OR'), name='outbox_one_recipient')],
            },
        ),
    ]
