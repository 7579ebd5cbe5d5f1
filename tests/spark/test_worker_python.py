"""The launcher of workers' Python: what it takes off PYTHONPATH, and when there is none."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.spark.launchers import launcher_folder, write_launcher
from kourou.spark.session import python_script, quick_python
from tests.needed import need_module

need_module("pyspark")

SAY = "import json, os, sys; print(json.dumps([os.environ.get('PYTHONPATH'), sys.argv[1:], sys.executable]))"


def said(launcher: str | Path, pythonpath: str | None, *arguments: str) -> tuple[str | None, list[str], str]:
    """What a Python that is started by a launcher says: its PYTHONPATH, arguments and path."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if pythonpath is not None:
        environ["PYTHONPATH"] = pythonpath
    done = subprocess.run(
        [launcher, "-c", SAY, *arguments], env=environ, capture_output=True, text=True, check=True
    )
    found, argv, executable = json.loads(done.stdout)
    return found, argv, executable


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "spark's home"


@pytest.fixture
def launcher(tmp_path: Path, home: Path) -> Path:
    path = tmp_path / "launcher" / "python"
    write_launcher(path, python_script(sys.executable, home))
    return path


def test_it_takes_sparks_own_entries_off(launcher: Path, home: Path) -> None:
    spark = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-1-src.zip", f"{home}/jars/core.jar"]
    assert said(launcher, ":".join(spark))[0] is None
    assert said(launcher, ":".join([*spark, "/my code", "/b"]))[0] == "/my code:/b"
    assert said(launcher, ":".join(["/a", *spark, "/*"]))[0] == "/a:/*"
    assert said(launcher, None)[0] is None
    # Neither another Spark's archive nor a folder that only begins alike is touched.
    others = f"/opt/spark/python/lib/pyspark.zip:{home}-too/lib.zip"
    assert said(launcher, others)[0] == others


def test_arguments_and_python_are_as_they_were(launcher: Path) -> None:
    _, arguments, executable = said(launcher, "/a", "-x", "a b", "", "$HOME", "x'y", "a:b", "*")
    assert arguments == ["-x", "a b", "", "$HOME", "x'y", "a:b", "*"]
    assert executable == sys.executable


def test_the_installed_pyspark_is_imported_where_spark_names_its_archive(tmp_path: Path) -> None:
    import pyspark

    quick = quick_python(sys.executable, {"XDG_CACHE_HOME": str(tmp_path)})
    assert Path(quick).is_relative_to(tmp_path / "kourou")
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    code = "import pyspark, pyspark.worker, sys; print(pyspark.__file__, sys.prefix)"
    for python, folder in ((quick, Path(pyspark.__file__).parent), (sys.executable, archive)):
        environ = {**os.environ, "PYTHONPATH": str(archive)}
        done = subprocess.run([python, "-c", code], env=environ, capture_output=True, text=True, check=True)
        found, prefix = done.stdout.split()
        assert Path(found).is_relative_to(folder) and prefix == sys.prefix
        assert (".zip" in found) is (python == sys.executable)


def test_a_second_one_is_the_same_file_and_a_torn_one_is_rewritten(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    quick = Path(quick_python(sys.executable, environ))
    whole = quick.read_text()
    quick.write_text("")
    assert quick_python(sys.executable, environ) == str(quick)
    assert quick.read_text() == whole and os.access(quick, os.X_OK)
    assert [path.name for path in quick.parent.iterdir()] == ["python"]


def test_another_python_is_left_alone(tmp_path: Path) -> None:
    assert quick_python("./env/bin/python", {"XDG_CACHE_HOME": str(tmp_path)}) == "./env/bin/python"
    assert not list(tmp_path.iterdir())


def test_another_spark_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "opt" / "spark"))
    assert quick_python(sys.executable, {"XDG_CACHE_HOME": str(tmp_path)}) == sys.executable


def test_a_pyspark_that_a_new_process_may_not_find_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert quick_python(sys.executable, {"XDG_CACHE_HOME": str(tmp_path)}) == sys.executable


def test_where_no_launcher_can_be_used_it_is_the_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = {"XDG_CACHE_HOME": str(tmp_path / "with blanks")}
    assert quick_python(sys.executable, blank) == sys.executable
    (tmp_path / "no folder").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no folder"))
    assert quick_python(sys.executable, {"XDG_CACHE_HOME": str(tmp_path / "no folder")}) == sys.executable


def test_a_folder_that_others_own_is_not_run_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    folder = launcher_folder({})
    assert folder.parent == tmp_path
    assert folder.name not in ("kourou", f"kourou-{os.geteuid() + 1}")
