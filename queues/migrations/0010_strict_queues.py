"""Queues in which nobody passes a job that waits."""


from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queues', '0009_forecasts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='queue',
            name='backfill_order',
            field=models.CharField(choices=[('shortest_limit', 'shortest limit first'), ('order', 'queue order'), ('none', 'nothing: nobody passes a job that waits')], default='shortest_limit', max_length=16),
        ),
    ]
