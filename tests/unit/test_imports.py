"""The layers: who may import whom. Keep this list equal to the one in docs/architecture.md."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "kourou"

# Direct permissions; what lies further down the chain is open too.
MAY_IMPORT: dict[str, set[str]] = {
    "protocol": set(),
    "store": {"protocol"},
    "transport": {"protocol"},
    "broker": {"store", "transport"},
    "namesrv": {"transport"},
    "client": {"transport"},
    "admin": {"client"},
    "spark": {"client", "store"},
    "console": {"admin"},
    "standalone": {"broker", "namesrv"},
    "embed": {"broker", "namesrv"},
    "cli": {"standalone", "namesrv", "broker", "admin", "console", "spark", "logs", "pidfile"},
    "argument_types": set(),
    "clock": set(),
    "errors": set(),
    "lazy_exports": set(),
    "config": set(),
    "logs": set(),
    "pidfile": set(),
    "wording": set(),
}
# "" is the root itself: __version__ and lazy names.
OPEN_TO_ALL = {"argument_types", "clock", "errors", "config", "lazy_exports", "wording", ""}


def reachable(layer: str) -> set[str]:
    """Everything `layer` may import, down the whole chain."""
    seen: set[str] = {layer}
    todo = [layer]
    while todo:
        for below in MAY_IMPORT[todo.pop()] - seen:
            seen.add(below)
            todo.append(below)
    return seen | OPEN_TO_ALL


def layer_of(module: str) -> str:
    """`kourou.transport.server` is in layer `transport`."""
    return module.removeprefix("kourou").lstrip(".").partition(".")[0]


@functools.cache
def imported_modules(path: Path) -> list[tuple[int, str]]:
    return list(_imported_modules(path))


def _imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "kourou":
                yield from ((node.lineno, f"kourou.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def violations(path: Path, layer: str) -> list[str]:
    allowed = reachable(layer)
    found = []
    for line, module in imported_modules(path):
        if module.split(".")[0] != "kourou" or module == "kourou.__version__":
            continue
        if layer_of(module) not in allowed:
            found.append(f"{path.relative_to(PACKAGE)}:{line} imports {module}")
    return found


def test_modules_import_only_what_their_layer_may() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if layer in {"testing", "__init__"}:
            continue  # testing may import everything; the root is lazy (test_public_names)
        assert layer in MAY_IMPORT, f"{path}: say in MAY_IMPORT what layer '{layer}' may import"
        found += violations(path, layer)
    assert found == []


def test_nothing_imports_testing() -> None:
    importers = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "testing"
        for line, module in imported_modules(path)
        if layer_of(module) == "testing" and module.startswith("kourou")
    ]
    assert importers == []


def test_a_forbidden_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "protocol").mkdir()
    module = tmp_path / "protocol" / "bad.py"
    module.write_text("def f():\n    from kourou.transport import server\n")
    assert violations(module, "protocol") == ["protocol/bad.py:2 imports kourou.transport"]
