"""The table of bills."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create it."""

    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Bill",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("order_id", models.CharField(max_length=100, unique=True)),
            ],
        )
    ]
