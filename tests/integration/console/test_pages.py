"""The files of the pages: they parse, stay small, need nothing from elsewhere, and their texts exist."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kourou.console.page_files import PAGES
from tests.needed import need

JS = PAGES / "js"
OWN_FILES = sorted(JS.rglob("*.js"))
MAX_LINES = 300
NODE_TESTS = Path(__file__).parent / "js"

_FULL_KEY = re.compile(r"""\b(?:t|tn)\(\s*(["'`])([\w.$-]+)\1\s*[,)]""")
_BUILT_KEY = re.compile(r"""\bt\(\s*`([\w.-]*)\$\{""")
_CONDITIONAL_KEY = re.compile(r"""\bt\([^()"'`]*\?\s*"([\w.-]+)"\s*:\s*"([\w.-]+)"\s*[,)]""")
_IMPORT = re.compile(r"""(?:\bfrom\s+|\bimport\s+|\bimport\(\s*)["'`]([^"'`]+)["'`]""")


def _keys(tree: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in tree.items():
        found |= _keys(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return found


def _language(name: str) -> dict[str, Any]:
    texts: dict[str, Any] = json.loads((PAGES / "lang" / f"{name}.json").read_text("utf-8"))
    return texts


def test_both_languages_have_the_same_keys_and_parameters() -> None:
    def parameters(name: str) -> dict[str, set[str]]:
        flat: dict[str, set[str]] = {}

        def walk(tree: dict[str, Any], prefix: str) -> None:
            for key, value in tree.items():
                if isinstance(value, dict):
                    walk(value, f"{prefix}{key}.")
                else:
                    flat[prefix + key] = set(re.findall(r"\{\w+\}", value))

        walk(_language(name), "")
        return flat

    assert parameters("en") == parameters("zh")


def test_every_text_that_a_script_uses_exists_and_none_is_left_over() -> None:
    keys = _keys(_language("en"))
    used: set[str] = set()
    for path in OWN_FILES:
        if path.name == "i18n.js":
            continue  # has `t` itself
        code = path.read_text("utf-8")
        for found in _FULL_KEY.finditer(code):
            name = found[2]
            counted = {f"{name}.one", f"{name}.other"} if found[0].lstrip().startswith("tn") else {name}
            assert counted <= keys, f"{path.name} uses the text {name}, which lang/en.json does not have"
            used |= counted
        for built in _BUILT_KEY.findall(code):
            matching = {key for key in keys if key.startswith(built)}
            assert built, f"{path.name}: a key must start with a name, so that it can be found"
            assert matching, f"{path.name} uses texts {built}…, of which lang/en.json has none"
            used |= matching
        for pair in _CONDITIONAL_KEY.findall(code):
            assert set(pair) <= keys, f"{path.name} uses the texts {pair}, which lang/en.json does not have"
            used |= set(pair)
    assert sorted(keys - used) == [], "texts that no script uses"


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: str(path.relative_to(JS)))
def test_a_script_imports_only_files_that_are_there(path: Path) -> None:
    code = path.read_text("utf-8")
    for name in _IMPORT.findall(code):
        if "${" in name:
            continue
        assert name.startswith("."), f"{name}: only relative paths, so that nothing comes from elsewhere"
        assert (path.parent / name).resolve().is_file(), name
    assert len(code.splitlines()) <= MAX_LINES, "one idea per file"
    assert "innerHTML" not in code and "insertAdjacentHTML" not in code and "eval(" not in code


def test_the_page_and_styles_load_nothing_from_elsewhere_and_have_no_inline_code() -> None:
    page = (PAGES / "index.html").read_text("utf-8")
    for address in re.findall(r"""(?:src|href)="([^"]+)\"""", page):
        assert (PAGES / address.removeprefix("/static/")).is_file(), address
    assert "<style" not in page and not re.search(r"<script[^>]*>\s*[^<\s]", page)
    for style in (PAGES / "css").glob("*.css"):
        assert "url(" not in style.read_text("utf-8") and "@import" not in style.read_text("utf-8")


def test_every_path_of_the_menu_has_a_page() -> None:
    menu = (JS / "menu.js").read_text("utf-8")
    names = set(re.findall(r'page: "([\w-]+)"', menu))
    assert {"overview", "topic", "login"} <= names
    assert names <= {path.stem for path in (JS / "pages").iterdir()}


def test_the_page_preloads_what_every_page_needs() -> None:
    page = (PAGES / "index.html").read_text("utf-8")
    preloaded = set(re.findall(r"""<link rel="modulepreload" href="/static/([^"]+)">""", page))
    needed: set[Path] = set()
    found = [JS / "main.js"]
    while found:
        path = found.pop()
        code = path.read_text("utf-8")
        imported = {(path.parent / name).resolve() for name in _IMPORT.findall(code) if "${" not in name}
        found += imported - needed
        needed |= imported
    needed = {path for path in needed if path.is_relative_to(JS)}
    assert {str(path.relative_to(PAGES)) for path in needed} <= preloaded


def test_vendored_files_are_those_of_the_readme() -> None:
    readme = (PAGES / "vendor" / "README.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", readme, re.MULTILINE))
    files = [path for path in (PAGES / "vendor").iterdir() if path.suffix in (".js", ".css")]
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    licences = set(re.findall(r"LICENSE-\w+\.txt", readme))
    assert licences == {path.name for path in (PAGES / "vendor").glob("LICENSE-*")}


def test_scripts_parse_and_their_functions_work_in_node(tmp_path: Path) -> None:
    node = need("node on PATH", shutil.which("node"))
    # Node takes .js files for modules only below a package.json that says so.
    shutil.copytree(PAGES, tmp_path / "pages")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copytree(NODE_TESTS, tmp_path / "tests")
    tests = sorted(str(path) for path in (tmp_path / "tests").glob("*.test.js"))
    vendored = str(tmp_path / "tests" / "vendored.js")
    command = [node, "--experimental-vm-modules", "--import", vendored, "--test", *tests]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
