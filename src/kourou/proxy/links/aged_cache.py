"""AgedCache: answers of other servers, kept for some seconds.

An answer is fresh at first, and returned as it is. Later it is still returned, and requested again in the
background. One that is old is requested before it is returned, unless the servers do not answer: then it is
better than none. Concurrent callers share one request. The number of answers is bounded; those requested
longest ago go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from kourou.errors import KourouError, NoNameServerError, RemotingError
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

FRESH_S: Final = 5.0
OLD_S: Final = 60.0
_NO_ANSWER: Final = (RemotingError, NoNameServerError)


class AgedCache(Generic[KeyT, ValueT]):
    """The answers of `load`, whose KourouErrors reach the callers. An answer that is loaded again and is an
    error then is dropped, unless it is only that a server does not answer. Requests are tasks of `tasks`."""

    def __init__(
        self,
        load: Callable[[KeyT], Awaitable[ValueT]],
        tasks: TaskOwner,
        *,
        what: str,
        max_entries: int = 10_000,
        fresh_s: float = FRESH_S,
        old_s: float = OLD_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._load = load
        self._tasks = tasks
        self._what = what
        self._max_entries = max_entries
        self._fresh_s = fresh_s
        self._old_s = old_s
        self._entries: OrderedDict[KeyT, tuple[ValueT, float]] = OrderedDict()
        self._loading: dict[KeyT, asyncio.Future[ValueT]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def known(self, key: KeyT) -> ValueT | None:
        """The answer without waiting; None: there is none, or it is old. It may be on its way again."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_s = self._loop.time() - entry[1]
        if age_s > self._fresh_s:
            if age_s > self._old_s:
                return None
            self._request(key)
        return entry[0]

    async def get(self, key: KeyT) -> ValueT:
        """The answer, requested if there is none or an old one."""
        value = self.known(key)
        if value is not None:
            return value
        return await self.refresh(key)

    async def refresh(self, key: KeyT) -> ValueT:
        """The answer, requested now. If no server answers, the last one there was."""
        try:
            # Shielded: a caller that is cancelled must not cancel the request for the others.
            return await asyncio.shield(self._request(key))
        except _NO_ANSWER:
            entry = self._entries.get(key)
            if entry is None:
                raise
            return entry[0]

    def drop(self, is_wrong: Callable[[ValueT], bool]) -> None:
        """Request those answers again when they are next needed."""
        for key in [key for key, (value, _) in self._entries.items() if is_wrong(value)]:
            del self._entries[key]

    def _request(self, key: KeyT) -> asyncio.Future[ValueT]:
        answer = self._loading.get(key)
        if answer is None:
            answer = self._loading[key] = self._loop.create_future()
            answer.add_done_callback(_retrieve)
            self._tasks.start(self._answer(key, answer), self._what)
        return answer

    async def _answer(self, key: KeyT, answer: asyncio.Future[ValueT]) -> None:
        try:
            value = await self._load(key)
        except KourouError as error:
            if not isinstance(error, _NO_ANSWER):
                self._entries.pop(key, None)
            _log.debug("%s %s: %s", self._what, key, error)
            answer.set_exception(error)
        except BaseException as error:
            answer.set_exception(RemotingError("", f"{self._what} {key}: the proxy stops or has failed"))
            if not isinstance(error, asyncio.CancelledError):
                _log.error("%s %s failed", self._what, key, exc_info=error)
            raise
        else:
            self._entries[key] = value, self._loop.time()
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
            answer.set_result(value)
        finally:
            del self._loading[key]


def _retrieve(answer: asyncio.Future[ValueT]) -> None:
    if not answer.cancelled():
        answer.exception()
