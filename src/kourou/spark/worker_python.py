"""The Python of Spark's workers, and of the processes that plan and run sources: started from compiled code.

Spark puts PySpark as an archive, `pyspark.zip`, before everything else that its Python processes import. What
is in it was never compiled, so each process compiles PySpark anew: most of the time that its start takes, and
Spark gives up on a stream whose process takes longer than 10 s. Where the same PySpark is installed, with its
compiled modules, a launcher takes Spark's own archives off PYTHONPATH, and becomes the Python that is asked
for. That is for executors on this machine only: others need not have the launcher's path.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.spark.launchers import launcher_folder, script_name, write_launcher

_LAUNCHER: Final = """#!/bin/sh
# Starts Python without the archives of Spark, whose modules it has installed and compiled.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case "$entry" in
    {home}/*) ;;
    *) kept="$kept:$entry" ;;
  esac
done
unset IFS
if [ -n "$kept" ]; then
  export PYTHONPATH="${{kept#:}}"
else
  unset PYTHONPATH
fi
exec {python} "$@"
"""
_ARCHIVE: Final = Path("python", "lib", "pyspark.zip")


def quick_python(python: str, environ: Mapping[str, str]) -> str:
    """What to run in place of `python`: a launcher of it that starts sooner, or `python` as it is.

    As it is where it is not the Python that runs this, where Spark is not the one of the installed PySpark
    (SPARK_HOME says so), where PySpark is found only by the help of something that a new process need not
    have, and where no launcher can be written or run.
    """
    home = _home_of_installed_spark()
    if python != sys.executable or home is None:
        return python
    script = python_script(python, home)
    try:
        launcher = launcher_folder(environ) / script_name("python", script) / "python"
        write_launcher(launcher, script)
    except OSError:
        return python
    # Spark's scripts take a path apart where there is a blank in it; and some caches may not be run from.
    is_usable = os.access(launcher, os.X_OK) and not any(each.isspace() for each in str(launcher))
    return str(launcher) if is_usable else python


def python_script(python: str, home: Path) -> str:
    """The launcher of `python` that leaves out what lies in Spark's home."""
    return _LAUNCHER.format(home=shlex.quote(str(home)), python=shlex.quote(python))


def _home_of_installed_spark() -> Path | None:
    """Where the Spark lies that is started, if it is part of a PySpark that any new process imports."""
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    package = _installed("pyspark")
    if package is None or _installed("py4j") is None or package.resolve() not in (home, *home.parents):
        return None
    return home if (home / _ARCHIVE).exists() else None


def _installed(name: str) -> Path | None:
    """The folder of a package, if it lies where Python looks without being told."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if folder.parent in _site_folders() else None


def _site_folders() -> set[Path]:
    folders = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return {Path(folder) for folder in folders}
