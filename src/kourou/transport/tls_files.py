"""FollowedContext: a TLS context that follows its files.

Certificates are renewed while servers run. New files are in force for new connections; connections that exist
keep theirs. Files are polled: Kubernetes swaps a symbolic link above them, which notifications do not report.
Modification time, size and inode are compared, so that a copy with an old time is noticed, too.

A file that cannot be used leaves the previous context in force; the reason is logged once, until a file
changes again. That is also what happens for a moment when a certificate and its key are replaced one by one.

Not here: what a context is made of (tls.py), when to look (listener.py, client.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from kourou.errors import ConfigError

_log = logging.getLogger(__name__)

_Stamp: TypeAlias = tuple[int, ...]


class FollowedContext:
    """The context of `make`, made again when one of `files` has changed. `title` names its user in logs.

    `make` raises ConfigError for files that cannot be used; at the construction the error goes to the caller.
    """

    def __init__(
        self, title: str, make: Callable[[], ssl.SSLContext | None], files: Iterable[Path | None]
    ) -> None:
        self._title = title
        self._make = make
        self._files = [path for path in files if path is not None]
        # Before they are read: a change while they are is noticed by the next look.
        self._stamps = self._read_stamps()
        self._looked_at = -math.inf
        self.context = make()

    @property
    def has_files(self) -> bool:
        """Whether there is anything to follow."""
        return self.context is not None and bool(self._files)

    async def look_when_due(self, now: float, every_s: float) -> None:
        """Look, but not more often than that; `now` is of any one clock."""
        if self.has_files and now - self._looked_at >= every_s:
            self._looked_at = now
            await asyncio.to_thread(self.look)

    def look(self) -> bool:
        """Whether the files have changed and are in force now. Reads files: not for the event loop."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self.context = self._make()
        except ConfigError as error:
            _log.error("%s: changed TLS files are not used, the previous ones stay: %s", self._title, error)
            return False
        _log.info("%s: TLS files have changed and are used for new connections", self._title)
        return True

    def _read_stamps(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._files]


def _stamp(path: Path) -> _Stamp:
    """What changes with the content; of the file that a link leads to."""
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
