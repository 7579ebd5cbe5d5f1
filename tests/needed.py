"""What some tests need and other machines may not have."""

from __future__ import annotations

import os
from typing import Any

import pytest


def need(what: str, found: Any) -> Any:
    """`found`, or the test is skipped; where everything has to be there (CI) it fails instead."""
    if found:
        return found
    for variable in ("KOUROU_REQUIRE_INTEGRATIONS", "KOUROU_REQUIRE_SPARK"):
        if os.environ.get(variable) == "1":
            pytest.fail(f"{variable}=1, but {what} is missing")
    pytest.skip(f"needs {what}", allow_module_level=True)


def need_module(name: str) -> Any:
    """A module, by `need`."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        return need(f"the package {name.partition('.')[0]}", None)
