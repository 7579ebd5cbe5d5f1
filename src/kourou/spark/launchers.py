"""Launchers: small shell scripts of ours that stand before other programs, Java and Python.

They are kept in the user's cache under names made of what is in them: processes that write one at the same
time write the same, and one that says something else is another file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def launcher_folder(environ: Mapping[str, str]) -> Path:
    """Where launchers are kept: the user's cache, or beside other temporary files where there is none."""
    if given := environ.get("XDG_CACHE_HOME"):
        base = Path(given)
    elif home := environ.get("HOME"):
        base = Path(home) / ".cache"
    else:
        base = Path(tempfile.gettempdir())
    folder = base / "kourou"
    if _is_ours(folder):
        return folder
    folder = Path(tempfile.gettempdir()) / f"kourou-{os.getuid()}"
    # The name is one that others can guess: what they put there is not to be run.
    return folder if _is_ours(folder) else Path(tempfile.mkdtemp(prefix="kourou-"))


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)


def script_name(kind: str, script: str) -> str:
    """A name for a script and for no other."""
    return f"{kind}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"


def write_launcher(launcher: Path, script: str) -> None:
    """Have `script` at this path, to be run by whoever may read it. Written once, and again where a crash of
    the machine left something else. OSError where nothing can be written."""
    if _reads(launcher, script):
        return
    launcher.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(written, 0o755)
    os.replace(written, launcher)


def _reads(launcher: Path, script: str) -> bool:
    try:
        return launcher.read_text() == script
    except (OSError, UnicodeError):
        return False
