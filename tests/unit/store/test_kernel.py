"""Whether the compiled kernel is used, and what is said if not."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import NoReturn

import pytest

from kourou.store.kernel import MODULE, VARIABLE, choose_kernel

BUILD = (
    "; install a C compiler and Python's headers (Debian, Ubuntu: gcc, libc6-dev, python3-dev), then run "
    "pip install --force-reinstall --no-deps . in Kourou's source folder (make kernel for its .venv)"
)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A kernel that fits, as far as can be seen."""
    module = ModuleType(MODULE)
    module.INTERFACE = 24  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


@pytest.mark.parametrize("variable", [{}, {VARIABLE: ""}, {VARIABLE: "1"}])
def test_one_that_fits_is_in_use(module: ModuleType, variable: dict[str, str]) -> None:
    choice = choose_kernel(environ=variable)
    assert choice.kernel is module
    assert (str(choice), choice.status, choice.cure) == ("compiled kernel in use", "in use", "")


def test_it_is_switched_off_by_a_variable_or_by_a_key(module: ModuleType) -> None:
    by_variable = choose_kernel(environ={VARIABLE: "0"})
    by_key = choose_kernel(is_enabled=False, environ={})
    assert by_variable.kernel is by_key.kernel is None
    assert str(by_variable) == (
        "compiled kernel not in use: KOUROU_KERNEL=0 in the environment; unset it and restart the broker"
    )
    assert str(by_key) == (
        "compiled kernel not in use: compiledKernelEnable=false; set it to true and restart the broker"
    )


def test_none_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    choice = choose_kernel(environ={})
    assert (choice.kernel, choice.is_fault) == (None, False)
    assert str(choice) == f"compiled kernel not in use: it was not built{BUILD}"


def test_one_of_another_version_is_not_used(module: ModuleType) -> None:
    module.INTERFACE = 99  # type: ignore[attr-defined]
    choice = choose_kernel(environ={})
    assert choice.kernel is None and choice.is_fault
    assert choice.problem == "it is of another version of Kourou (interface 99, not 24)"


def test_one_that_cannot_be_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> NoReturn:
        raise ImportError(f"{name}.so: wrong ELF class")

    monkeypatch.setattr(importlib, "import_module", refuse)
    choice = choose_kernel(environ={})
    assert choice.kernel is None and choice.is_fault
    assert choice.problem == "it cannot be loaded: kourou.store._kernel.so: wrong ELF class"
