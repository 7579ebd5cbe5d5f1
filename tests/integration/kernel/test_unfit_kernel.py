"""A broker beside a kernel that is not the one of its version."""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType

import pytest

from kourou.store.kernel import _INTERFACE, MODULE
from tests.integration.kernel.kernel_kit import fed_broker, install
from tests.interop.kit.ports import free_port


async def test_a_broker_warns_of_a_kernel_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    install(ModuleType(MODULE), monkeypatch)
    async with fed_broker(tmp_path, host="127.0.0.1", port=free_port(), kernel=True) as broker:
        assert not broker.has_kernel
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage().startswith(
        "compiled kernel not in use: it is of another version of Kourou "
        f"(interface None, not {_INTERFACE}); install"
    )
