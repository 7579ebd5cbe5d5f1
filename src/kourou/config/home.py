"""Where Kourou keeps a user's files by default.

The environment is passed in by the entry point; nothing here reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ROCKETMQ_HOME = "ROCKETMQ_HOME"


def data_home(environ: Mapping[str, str]) -> Path:
    """`ROCKETMQ_HOME`, else the user's data folder for Kourou."""
    if environ.get(ROCKETMQ_HOME):
        return Path(environ[ROCKETMQ_HOME])
    return _base(environ, "XDG_DATA_HOME", ".local/share") / "kourou"


def state_home(environ: Mapping[str, str]) -> Path:
    """The user's folder for what runs now, such as pid files; independent of ROCKETMQ_HOME."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "kourou"


def config_home(environ: Mapping[str, str]) -> Path:
    """The user's folder for settings of the command line; independent of ROCKETMQ_HOME."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "kourou"


def user_home(environ: Mapping[str, str]) -> Path:
    """The user's home folder; where the environment names none, the operating system's answer."""
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    # The XDG specification says that a relative path is to be ignored.
    given = environ.get(variable, "")
    return Path(given) if given.startswith("/") else user_home(environ) / below_home


def folder_problem(folder: Path) -> str | None:
    """Why a folder cannot exist: it, or a folder above it, is a file; None if it can."""
    found = next((path for path in (folder, *folder.parents) if os.path.exists(path)), None)
    if found is None or os.path.isdir(found):
        return None
    what = "is a file, not a folder" if found == folder else f"{found} is a file, not a folder"
    return f"{what}; give a folder, which is created if it does not exist"
