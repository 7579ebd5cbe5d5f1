"""axe-core, accessibility checks that run in the page: from npm, kept in the cache folder of artifacts.py.

Run as a module it fills the cache; it uses the standard library only, since CI calls it before all else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.interop.kit.artifacts import cache_dir

VERSION: Final = "4.14.0"
_ATTEMPTS: Final = 4
_RETRY_PAUSE_S: Final = 5
_TIMEOUT_S: Final = 120


def script() -> Path | None:
    """The file to load into a page; None where it is not in the cache and there is no npm."""
    path = cache_dir() / f"axe-core-{VERSION}" / "node_modules" / "axe-core" / "axe.min.js"
    if not path.exists() and shutil.which("npm"):
        _fetch(path.parents[2])
    return path if path.exists() else None


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    for attempt in range(1, _ATTEMPTS + 1):
        done = subprocess.run([*command, f"axe-core@{VERSION}"], timeout=_TIMEOUT_S, check=False)
        if done.returncode == 0:
            return
        print(f"axe-core: attempt {attempt} failed", file=sys.stderr)
        time.sleep(_RETRY_PAUSE_S)


if __name__ == "__main__":
    sys.exit(0 if script() else "axe-core cannot be fetched: npm is missing, or its registry is unreachable")
