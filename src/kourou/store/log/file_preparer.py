"""FilePreparer: makes the next file of the CommitLog in a thread of its own, before it is needed.

To create and reserve a file of 1 GiB takes a tenth of a second, in which no sender would be
answered. If the thread does not get there in time, or fails, the log makes the file itself.
"""

from __future__ import annotations

import errno
import logging
import threading

from kourou.store.log.commit_log import CommitLog

_log = logging.getLogger(__name__)


class FilePreparer:
    """Prepares files of one log until stopped."""

    def __init__(self, log: CommitLog, *, retry_s: float = 1.0) -> None:
        self._commit_log = log
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._retry_s = retry_s
        self._thread = threading.Thread(target=self._run, name="commit-log-preparer", daemon=True)
        self._thread.start()

    def request_nowait(self) -> None:
        """Have the next file made if there is none yet; never waits. To be called after each commit cycle:
        it costs two comparisons when nothing is to be done."""
        if self._commit_log.wants_next_file and not self._wanted.is_set():
            self._wanted.set()

    def stop(self) -> None:
        """Wait for the file that is being made and end the thread."""
        self._ended.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while self._wanted.wait():
            # Cleared before the work: a stop that comes meanwhile must not be forgotten.
            self._wanted.clear()
            if self._ended.is_set():
                return
            try:
                self._commit_log.prepare_next()
            except OSError as error:
                # The log tries again when it needs the file, and its senders hear of it then. That the whole
                # folder is gone is found, and reported, by log_watch.py.
                if error.errno != errno.ENOENT:
                    _log.warning("the next CommitLog file cannot be created yet: %s", error.strerror or error)
                # Passes ask again and again; a disk that just failed is left alone for a moment.
                self._ended.wait(self._retry_s)
