"""Public names of a package that are loaded on first use, so that importing the package stays light.

    if TYPE_CHECKING:
        from kourou.shop.orders import Order
    else:
        __getattr__, __dir__ = lazy_exports(__name__, {"kourou.shop.orders": ("Order",)})

    __all__ = ["Order"]

Type checkers read the imports, and report a name that does not exist. A test compares the three lists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import FrameType


def lazy_exports(
    package: str,
    modules: Mapping[str, Iterable[str]],
    *,
    see_also: Iterable[str] = (),
    install: str | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`, whose public names are defined in `modules`.

    The error for an unknown name suggests one: of this package, or of a package in `see_also`. `install`
    replaces the message of an ImportError where the names need an extra.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise _unknown_name(package, name, see_also, sys._getframe(1))
        try:
            value: object = getattr(import_module(home), name)
        except ImportError as error:
            if install is None:
                raise
            raise ImportError(install) from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: _public_names(package)


def _public_names(package: str) -> list[str]:
    names = getattr(import_module(package), "__all__", None)
    return sorted(names or vars(import_module(package)))


def _unknown_name(package: str, name: str, see_also: Iterable[str], caller: FrameType) -> Exception:
    """The error for a name that does not exist. `from package import NAME` would replace an AttributeError
    by an ImportError without the hint, so it gets an ImportError here."""
    from opcode import opname

    if opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
        hint = _hint(package, name, see_also)
        return ImportError(f"cannot import name '{name}' from '{package}'{hint}", name=name)
    # Python itself probes for such names, and for a submodule before it imports that: the hint is not shown.
    is_probe = name.startswith("__") or caller.f_globals.get("__name__") == "importlib._bootstrap"
    hint = "" if is_probe else _hint(package, name, see_also)
    return AttributeError(f"module '{package}' has no attribute '{name}'{hint}")


def _hint(package: str, name: str, see_also: Iterable[str]) -> str:
    from kourou.wording import suggestion

    for module in see_also:
        if name in _public_names(module):
            return f"; it is in {module}: from {module} import {name}"
    names = _public_names(package)
    if longer := [known for known in names if known.endswith(name) and not known.startswith("Async")]:
        return f"; did you mean {' or '.join(longer)}?"
    return suggestion(name, names) or f"; it offers {', '.join(names)}"
