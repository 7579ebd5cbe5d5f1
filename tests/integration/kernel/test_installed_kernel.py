"""Which kernel is used, if any."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from kourou.store.kernel import MODULE, installed_kernel
from tests.integration.kernel.kernel_kit import install


def test_one_that_is_installed_is_used(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    install(kernel, monkeypatch)
    assert installed_kernel() is kernel


def test_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)  # importing it fails
    assert installed_kernel() is None


def test_one_of_another_interface_is_left_alone(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(kernel, monkeypatch)
    monkeypatch.setattr(kernel, "INTERFACE", 99)
    assert installed_kernel() is None
    assert "interface 99" in caplog.text


def test_a_module_that_is_no_kernel_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    install(ModuleType(MODULE), monkeypatch)
    assert installed_kernel() is None
