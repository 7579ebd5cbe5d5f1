"""The tables of the shop."""

from __future__ import annotations

from django.db import models


class Bill(models.Model):
    """One for each order: the order's key is unique, so a repeated message creates no second one."""

    order_id = models.CharField(max_length=100, unique=True)
