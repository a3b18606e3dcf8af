"""How the tenants of a cohort take turns."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0002_outbox'),
    ]

    operations = [
        migrations.AddField(
            model_name='cohort',
            name='order',
            field=models.CharField(choices=[('classic', 'classic: who does not borrow first, then priority, then age'), ('fair_share', 'fair share: who has had less than its share first')], db_default='classic', default='classic', max_length=10),
        ),
    ]
