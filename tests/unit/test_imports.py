"""The layers and sub-packages import only what docs/architecture.md allows, and no two modules import each
other.

The page is the table: a block ```` ```imports ```` has the layers, ```` ```imports broker ```` the
sub-packages of `broker`. `a, b -> c` means that `a` and `b` may import `c` and what `c` may import. A line
with `# exception:` permits an import against that order; it opens nothing further. Imports under
TYPE_CHECKING count for layers only. Modules directly in a package are in none of its sub-packages.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "kourou"
PAGE = PROJECT / "docs" / "architecture.md"
OPEN_TO_ALL = "open to all:"
# The root itself: __version__ and names loaded on first use.
ROOT = ""
WITH_SUB_PACKAGES = ("broker", "store", "client")


@dataclass
class Table:
    """A block of the page."""

    may: dict[str, set[str]] = field(default_factory=dict)
    exceptions: set[tuple[str, str]] = field(default_factory=set)
    open_to_all: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, block: str) -> Table:
        table = cls()
        for line in filter(None, map(str.strip, block.splitlines())):
            if line.startswith(OPEN_TO_ALL):
                table.open_to_all |= names(line.removeprefix(OPEN_TO_ALL))
                continue
            rule, _, reason = line.partition("# exception:")
            left, _, right = rule.partition("->")
            for importer in names(left):
                if reason:
                    table.exceptions |= {(importer, imported) for imported in names(right)}
                else:
                    table.may.setdefault(importer, set()).update(names(right))
        for name in set().union(*table.may.values(), table.open_to_all):
            table.may.setdefault(name, set())
        return table

    def allows(self, importer: str, imported: str) -> bool:
        return (
            imported in self.open_to_all
            or imported in self.reachable(importer)
            or (importer, imported) in self.exceptions
        )

    def reachable(self, importer: str) -> set[str]:
        """Everything that `importer` may import, down the whole chain."""
        seen = {importer}
        todo = [importer]
        while todo:
            below = self.may[todo.pop()] - seen
            seen |= below
            todo += below
        return seen


def names(text: str) -> set[str]:
    return {name for name in re.split(r"[,\s]+", text) if name}


def table(package: str = "") -> Table:
    heading = f"```imports {package}".strip()
    block = re.search(rf"^{heading}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert block is not None, f"{PAGE.name} has no block {heading}"
    return Table.parse(block[1])


class When(enum.IntEnum):
    """When an import is executed."""

    NEVER = 0  # under TYPE_CHECKING
    ON_CALL = 1  # in a function
    ON_IMPORT = 2


@dataclass(frozen=True)
class Import:
    line: int
    module: str
    when: When


@functools.cache
def imports(path: Path) -> list[Import]:
    return list(_imports(path, ast.parse(path.read_text()), When.ON_IMPORT))


def _imports(path: Path, node: ast.AST, when: When) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name, when) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}:{node.lineno}: relative import"
        yield from (Import(node.lineno, f"{node.module}.{alias.name}", when) for alias in node.names)
    elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
        for statement in node.body:
            yield from _imports(path, statement, When.NEVER)
        for statement in node.orelse:
            yield from _imports(path, statement, when)
    else:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            when = min(when, When.ON_CALL)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from _imports(path, child, when)


def layer_of(module: str) -> str:
    """`kourou.transport.server` is in layer `transport`; a name of the root itself in none."""
    name = module.removeprefix("kourou").lstrip(".").partition(".")[0]
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else ROOT


def sub_package_of(module: str, package: str) -> str | None:
    """`kourou.store.log.commit_log` is in `log` of `store`; `kourou.store.settings` is in none."""
    prefix = f"kourou.{package}."
    name = module.removeprefix(prefix).partition(".")[0] if module.startswith(prefix) else ""
    return name if name and (PACKAGE / package / name).is_dir() else None


def where(path: Path, found: Import) -> str:
    return f"{path.relative_to(PACKAGE)}:{found.line} imports {found.module}"


def violations(path: Path, layer: str, layers: Table) -> list[str]:
    return [
        where(path, found)
        for found in imports(path)
        if found.module.split(".")[0] == "kourou"
        and layer_of(found.module) != ROOT
        and not layers.allows(layer, layer_of(found.module))
    ]


def test_modules_import_only_what_their_layer_may() -> None:
    layers = table()
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if layer in {"testing", "__init__"}:
            continue  # testing may import everything; the root is lazy (test_public_names)
        assert layer in layers.may, f"{path}: say in {PAGE.name} what layer '{layer}' may import"
        found += violations(path, layer, layers)
    assert found == []


def test_nothing_imports_testing() -> None:
    importers = [
        where(path, found)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "testing"
        for found in imports(path)
        if found.module.startswith("kourou.testing")
    ]
    assert importers == []


def test_a_forbidden_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    for name in ("protocol", "transport"):
        (tmp_path / name).mkdir()
    module = tmp_path / "protocol" / "bad.py"
    module.write_text("def f():\n    from kourou.transport import server\n")
    problem = "protocol/bad.py:2 imports kourou.transport.server"
    assert violations(module, "protocol", table()) == [problem]


WIRING = ("wiring.py", "send_wiring.py", "pop_wiring.py", "metrics_wiring.py")


def test_parts_of_a_broker_take_what_they_use_not_everything() -> None:
    """BrokerServices stays in the composition root; types count too: an annotation would be a way in."""
    importers = {
        path.name
        for path in (PACKAGE / "broker").rglob("*.py")
        for found in imports(path)
        if found.module.startswith("kourou.broker.services.")
    }
    assert importers == {"assembly.py", "controller.py", *WIRING}


def test_parts_of_a_broker_take_components_of_the_store_as_arguments() -> None:
    """A MessageStore offers its methods; its components are passed on by the composition root."""
    components = r"store\.(log|queues|appender|reader|lookup|index|dispatcher|watch|checkpoint|damages)\b"
    found = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in sorted((PACKAGE / "broker").rglob("*.py"))
        if path.name not in {"services.py", "assembly.py", *WIRING}
        for match in re.finditer(rf"(?<!kourou\.){components}", path.read_text())
    ]
    assert found == []


# -- sub-packages ----------------------------------------------------------------------------------


def edges(package: str) -> dict[tuple[str, str], str]:
    """Run-time imports between sub-packages, each with one place."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted((PACKAGE / package).rglob("*.py")):
        importer = path.relative_to(PACKAGE / package).parts[0]
        if importer.endswith(".py"):
            continue
        for entry in imports(path):
            imported = sub_package_of(entry.module, package)
            if entry.when and imported is not None and imported != importer:
                found.setdefault((importer, imported), where(path, entry))
    return found


@pytest.mark.parametrize("package", WITH_SUB_PACKAGES)
def test_sub_packages_import_only_what_they_may(package: str) -> None:
    allowed = table(package)
    assert set(allowed.may) == {
        path.name for path in (PACKAGE / package).iterdir() if (path / "__init__.py").exists()
    }
    assert [place for edge, place in edges(package).items() if not allowed.allows(*edge)] == []


@pytest.mark.parametrize("package", WITH_SUB_PACKAGES)
def test_an_exception_is_needed(package: str) -> None:
    allowed = table(package)
    assert allowed.exceptions - edges(package).keys() == set()
    assert {edge for edge in allowed.exceptions if edge[1] in allowed.reachable(edge[0])} == set()


@pytest.mark.parametrize("package", ["", *WITH_SUB_PACKAGES])
def test_the_tables_have_no_cycle(package: str) -> None:
    assert cycle_of(table(package).may) == []


def cycle_of(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(map(str, error.args[1]))
    return []


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_each_other() -> None:
    modules = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        called = {entry.module for entry in imports(path) if entry.when is When.ON_IMPORT}
        graph[name] = {
            module if module in modules else module.rpartition(".")[0] for module in called
        } & modules.keys() - {name}
    assert cycle_of(graph) == []
