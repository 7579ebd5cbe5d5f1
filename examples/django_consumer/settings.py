"""Settings of the example: enough for `python manage.py migrate` and `python manage.py consume_orders`."""

from __future__ import annotations

import os
from pathlib import Path

SECRET_KEY = "only-an-example"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", str(Path(__file__).with_name("shop.sqlite3"))),
        "OPTIONS": {"timeout": 20},
    }
}
ROCKETMQ_NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
