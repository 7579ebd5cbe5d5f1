"""Shared by the tests of mqadmin with a broker: the time zone in which Apache's tools were recorded."""

from tests.unit.admin.conftest import utc

__all__ = ["utc"]
