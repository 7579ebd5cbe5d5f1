"""Launchers: small shell scripts that wrap other programs, Java and Python.

They are in the user's cache under names derived from their content: processes that write one at the same time
write the same bytes, and a different script is a different file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def launcher_folder(environ: Mapping[str, str]) -> Path:
    """The folder of launchers: the user's cache, or the temporary folder without one."""
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
    # Other users can guess the name: what they put there must not be run.
    return folder if _is_ours(folder) else Path(tempfile.mkdtemp(prefix="kourou-"))


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)


def script_name(kind: str, script: str) -> str:
    """A name that is unique to a script."""
    return f"{kind}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"


def write_launcher(launcher: Path, script: str) -> None:
    """Ensure that `script` is at this path and executable by all who may read it. Written once, and again
    if a crash of the machine corrupted it. OSError if it cannot be written."""
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
