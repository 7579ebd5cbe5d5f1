"""MessageScans: searches through many messages that run in the background, with progress, until they are
done, cancelled or at a bound.

Few run at the same time. A scan whose page was closed ends by itself: nothing has read its progress for a
while. Results are kept for some minutes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, Literal

from kourou.admin.messages.message_pages import PagePosition, PageRequest, read_page
from kourou.admin.messages.message_view import MessageSummary
from kourou.admin.session import Admin
from kourou.console.api_errors import ApiError, api_error_of, not_found

_log = logging.getLogger(__name__)

MAX_RUNNING: Final = 4
"""Scans at the same time, of all users."""
_MAX_KEPT: Final = 32
_KEEP_S: Final = 600.0
_ABANDONED_S: Final = 30.0
# A part ends in time for progress and cancellation, and its matches are shown.
_PART_OFFSETS: Final = 5_000
_PART_S: Final = 1.0

ScanState = Literal["running", "done", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """Where a scan stops."""

    most_messages: int
    most_seconds: float
    most_found: int


@dataclass(slots=True)
class Scan:
    """One search."""

    scan_id: str
    user: str
    request: PageRequest
    bounds: ScanBounds
    started_at: float
    polled_at: float
    state: ScanState = "running"
    stopped_by: str = ""
    """The bound that ended it: `messages`, `seconds`, `found`, or `abandoned`; empty if none."""
    scanned: int = 0
    left: int | None = None
    """Offsets that are not read yet; None before the first part."""
    found: list[MessageSummary] = field(default_factory=list)
    problems: dict[str, None] = field(default_factory=dict)
    filtered_here: set[str] = field(default_factory=set)
    ended_at: float | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def elapsed_s(self, now: float) -> float:
        """How long it runs, or ran."""
        return (self.ended_at if self.ended_at is not None else now) - self.started_at


class MessageScans:
    """The scans of a console."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._scans: dict[str, Scan] = {}

    def start(self, admin: Admin, user: str, request: PageRequest, bounds: ScanBounds) -> Scan:
        """Begin a scan. ApiError 429 if as many as possible are running."""
        self._forget_old()
        running = [scan for scan in self._scans.values() if scan.state == "running"]
        if len(running) >= MAX_RUNNING:
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_scans",
                f"{len(running)} searches are running, which is the maximum",
                "wait for one to end, or cancel one",
            )
        now = self._clock()
        scan = Scan(secrets.token_urlsafe(12), user, request, bounds, now, now)
        self._scans[scan.scan_id] = scan
        scan.task = asyncio.create_task(self._run(admin, scan), name=f"console-scan-{scan.scan_id}")
        return scan

    def get(self, scan_id: str, user: str) -> Scan:
        """A scan of this user, whose progress was read now. ApiError 404 if there is none."""
        scan = self._scans.get(scan_id)
        if scan is None or scan.user != user:
            raise not_found("there is no such search any more", "start it again")
        scan.polled_at = self._clock()
        return scan

    async def cancel(self, scan_id: str, user: str) -> Scan:
        """End a scan; what it has found stays. On return it has ended."""
        scan = self.get(scan_id, user)
        await self._end(scan)
        return scan

    async def stop(self) -> None:
        """End all."""
        for scan in self._scans.values():
            await self._end(scan)

    @staticmethod
    async def _end(scan: Scan) -> None:
        if scan.task is not None:
            scan.task.cancel()
            await asyncio.gather(scan.task, return_exceptions=True)

    def _forget_old(self) -> None:
        now = self._clock()
        ended = [scan for scan in self._scans.values() if scan.ended_at is not None]
        ended.sort(key=lambda scan: scan.ended_at or 0)
        surplus = len(self._scans) - _MAX_KEPT + 1
        for number, scan in enumerate(ended):
            if number < surplus or now - (scan.ended_at or 0) > _KEEP_S:
                del self._scans[scan.scan_id]

    async def _run(self, admin: Admin, scan: Scan) -> None:
        state: ScanState = "failed"
        try:
            await self._read(admin, scan)
            state = "done"
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        except Exception as error:
            scan.problems[str(api_error_of(error))] = None
        finally:
            scan.state, scan.ended_at = state, self._clock()

    async def _read(self, admin: Admin, scan: Scan) -> None:
        position: PagePosition | None = None
        while True:
            part = replace(
                scan.request,
                limit=scan.bounds.most_found - len(scan.found),
                most_offsets=min(_PART_OFFSETS, scan.bounds.most_messages - scan.scanned),
                deadline_s=_PART_S,
            )
            page = await read_page(admin, part, MessageSummary.of, position)
            position = page.next
            scan.found += page.messages
            scan.scanned += page.scanned
            scan.left = sum(rest.size for rest in position.values()) if position else 0
            scan.problems.update(dict.fromkeys(page.problems))
            scan.filtered_here.update(page.filtered_here)
            # Without progress only brokers that do not answer are left.
            if position is None or (not page.scanned and not page.messages and page.problems):
                return
            scan.stopped_by = self._bound(scan)
            if scan.stopped_by:
                return

    def _bound(self, scan: Scan) -> str:
        now = self._clock()
        if len(scan.found) >= scan.bounds.most_found:
            return "found"
        if scan.scanned >= scan.bounds.most_messages:
            return "messages"
        if now - scan.started_at >= scan.bounds.most_seconds:
            return "seconds"
        return "abandoned" if now - scan.polled_at > _ABANDONED_S else ""
