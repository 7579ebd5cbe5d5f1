"""`pip install .` and the wheel, with a C compiler and without: contents, and what `kourou version` says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.install_kit import PROJECT, build_wheel, fresh_environment, install, run
from tests.integration.kernel.kernel_kit import build_problem

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

VERSION = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
KERNEL = "kourou/store/_kernel.abi3.so"
NATIVE = "src/kourou/store/native"
PAGES = PROJECT / "src" / "kourou" / "console" / "pages"
_SOURCES = (".py", ".pyi", ".proto")
NO_COMPILER = "/nonexistent/cc"
BUILD_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"

needs_compiler = pytest.mark.skipif(
    build_problem() is not None, reason="no C compiler or Python headers here"
)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a clean environment."""
    return fresh_environment(tmp_path / "venv")


def version(python: Path) -> dict[str, Any]:
    """What `kourou version` says there; the words agree with the JSON."""
    kourou = python.with_name("kourou")
    found: dict[str, Any] = json.loads(run(kourou, "version", "--json", cwd=python.parent))
    kernel = found["kernel"]
    words = run(kourou, "version", cwd=python.parent).splitlines()
    assert words[0].startswith(f"kourou {VERSION}, ") and len(words) == 2
    if kernel["inUse"]:
        assert words[1] == "compiled kernel in use"
    else:
        assert words[1] == f"compiled kernel not in use: {kernel['problem']}; {kernel['cure']}"
    where = run(python, "-c", "import kourou; print(kourou.__file__)", cwd=python.parent)
    assert where.startswith(str(python.parents[1])), "not the one that was installed"
    return found


@needs_compiler
def test_with_a_compiler_pip_install_brings_the_kernel(python: Path) -> None:
    output = install(python, PROJECT)
    assert "without the compiled kernel" not in output
    assert version(python)["kernel"] == {"inUse": True, "problem": None, "cure": None}
    # What the README uses first.
    run(python, "-c", "from kourou import Producer, PushConsumer", cwd=python.parent)
    help_text = run(python.with_name("kourou"), "standalone", "--help", cwd=python.parent)
    assert "--namesrv-port" in help_text


def test_without_a_compiler_pip_install_leaves_it_out_and_says_so(python: Path) -> None:
    output = install(python, PROJECT, CC=NO_COMPILER)
    (line,) = re.findall(r"kourou: building without the compiled kernel: .*", output)
    assert NO_COMPILER in line and "install a C compiler and Python's headers" in line
    assert "py3-none-any.whl" in output
    kernel = version(python)["kernel"]
    assert (kernel["inUse"], kernel["problem"]) == (False, "it was not built")
    assert "install a C compiler and Python's headers" in kernel["cure"]


def test_a_build_that_requires_the_kernel_fails_without_a_compiler(python: Path) -> None:
    output = install(python, PROJECT, fails=True, CC=NO_COMPILER, KOUROU_KERNEL="1")
    assert NO_COMPILER in output and not python.with_name("kourou").exists()


def test_the_kernel_can_be_left_out_on_purpose(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, KOUROU_KERNEL="0")
    assert wheel.name == f"kourou-{VERSION}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert KERNEL not in names
    # The console's pages are files of the wheel.
    pages = {name.partition("kourou/console/pages/")[2] for name in names}
    assert {"index.html", "js/main.js", "lang/zh.json", "vendor/README.md"} <= pages


@pytest.mark.parametrize("variables", [{"CC": NO_COMPILER}, {"KOUROU_KERNEL": "0"}])
def test_a_checkout_does_not_keep_the_kernel_of_an_earlier_build(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, tmp_path / name)
    shutil.copytree(PROJECT / NATIVE, tmp_path / NATIVE)
    (tmp_path / "src/kourou/store/__init__.py").touch()
    earlier = tmp_path / "src" / KERNEL
    earlier.touch()
    run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=tmp_path, **variables)
    assert not earlier.exists()


@needs_compiler
def test_the_wheel_has_the_whole_package_and_a_kernel_for_all_versions(tmp_path: Path, python: Path) -> None:
    wheel = build_wheel(tmp_path)
    assert wheel.name.startswith(f"kourou-{VERSION}-cp311-abi3-")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(PROJECT / "src"))
        for path in (PROJECT / "src").rglob("*")
        if path.is_file() and (path.suffix in _SOURCES or path.name == "py.typed" or PAGES in path.parents)
    }
    assert {name for name in names if ".dist-info/" not in name} == sources | {KERNEL}
    install(python, wheel)
    assert version(python)["kernel"]["inUse"]


def test_the_sdist_has_what_a_build_needs(tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # a build writes beside the sources
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (PROJECT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, tree / name)
    run(sys.executable, "-c", BUILD_SDIST, tmp_path, cwd=tree)
    with tarfile.open(tmp_path / f"kourou-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/pyspark_kourou.py"}
    native = {str(path.relative_to(PROJECT)) for path in (PROJECT / NATIVE).iterdir()}
    assert needed | native | {"src/kourou/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "build")) or name.endswith(".so")]
