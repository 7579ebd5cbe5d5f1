"""Renewals: extends the time of messages that clients hold, and gives messages back.

All of a client when it is gone; when the proxy stops, those whose handles only this proxy can translate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from kourou.errors import KourouError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import CommandHead
from kourou.proxy.clients.handle_requests import (
    REQUEST_TIMEOUT_MS,
    OnResponse,
    change_request,
    handle_after_change,
    handle_error,
)
from kourou.proxy.clients.held_messages import SLOT_S, HeldCounts, HeldMessage, HeldMessages
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.messages.statuses import StatusError
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_EXTENSIONS_MS: Final = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
_MAX_HOLD_S: Final = 3 * 3600.0
"""A message is given back after so long: its consumer hangs. 3 h as in Apache's proxy."""
GIVE_BACK_MS: Final = 1_000
"""When a message that no client holds any more is delivered again."""
_AT_ONCE: Final = 100
"""Messages of one client that are given back at a time."""


class Renewals:
    """Extends in rounds, every 5 s."""

    def __init__(self, held: HeldMessages, tasks: TaskOwner) -> None:
        self._loop = asyncio.get_running_loop()
        self._held = held
        self._tasks = tasks
        self._renewed = self._failed = self._given_up = 0

    @property
    def counts(self) -> HeldCounts:
        """What has been done so far."""
        return HeldCounts(self._renewed, self._failed, self._given_up, self._held.not_held)

    def start(self) -> None:
        """Begin the rounds."""
        self._tasks.start(self._run(), "renew receipt handles")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SLOT_S)
            self.extend_due(self._loop.time())

    def extend_due(self, now_s: float) -> None:
        """Extend what is about to end."""
        for held in self._held.take_due(now_s):
            if held.is_gone:
                continue
            if held.is_used or held.expires_s <= now_s:
                # In use: what the client does with it comes first. Expired: nothing helps any more.
                self._put_back(held, now_s)
                continue
            held.use(partial(self._extend, held, now_s))

    def _put_back(self, held: HeldMessage, now_s: float) -> None:
        if held.expires_s <= now_s:
            self._held.remove(held)
        else:
            self._held.postpone(held, now_s)

    def _extend(self, held: HeldMessage, now_s: float) -> None:
        invisible_ms = _EXTENSIONS_MS[min(held.renewals, len(_EXTENSIONS_MS) - 1)]
        if now_s - held.received_s > _MAX_HOLD_S:
            rules = held.client.rules
            invisible_ms = GIVE_BACK_MS if rules is None else rules.retry_delay_ms(held.reconsume_times)
            self._given_up += 1
            _log.warning("message %s of %s is given back: it is held for too long", held.key, held.client)
            self._held.remove(held)
        group, topic, _ = held.key
        command = change_request(held.handle, topic, group, invisible_ms)
        sink = OnResponse(partial(self._extended, held, invisible_ms), partial(self._not_extended, held))
        held.client.link(held.handle.broker_name).call_into(command, REQUEST_TIMEOUT_MS, sink)

    def _extended(self, held: HeldMessage, invisible_ms: int, head: CommandHead, _: bytes) -> None:
        if head.code != ResponseCode.SUCCESS:
            raise handle_error(head.code, head.remark or "", held.handle.broker_name)
        held.handle = handle_after_change(held.handle, head)
        held.expires_s = self._loop.time() + invisible_ms / 1000
        held.renewals += 1
        self._renewed += 1
        self._held.schedule(held)
        held.release()

    def _not_extended(self, held: HeldMessage, error: Exception) -> None:
        self._failed += 1
        if isinstance(error, StatusError):
            self._held.remove(held)
        elif not held.is_gone:
            self._put_back(held, self._loop.time())
        level = logging.INFO if isinstance(error, KourouError) else logging.ERROR
        _log.log(level, "the time of message %s is not extended: %s", held.key, error)
        held.release()

    async def give_back_all(self, client: ProxyClient) -> None:
        """Have all messages of a client that is gone be delivered again."""
        await self._give_back_each(client, self._held.take_all_of(client))

    async def give_back_renewed(self, client: ProxyClient) -> None:
        """Have those messages of a client be delivered again whose time was extended: without this proxy,
        the handles that the client has got for them are of no use. Others it can still acknowledge."""
        held = [each for each in self._held.take_all_of(client) if each.renewals]
        await self._give_back_each(client, held)

    async def _give_back_each(self, client: ProxyClient, all_held: Iterable[HeldMessage]) -> None:
        now_s = self._loop.time()
        held = [each for each in all_held if each.expires_s > now_s]
        for first in range(0, len(held), _AT_ONCE):
            calls = map(self._give_back, held[first : first + _AT_ONCE])
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, KourouError):
                    _log.info("a message of %s is not given back: %s", client, outcome)
                elif outcome is not None:
                    raise outcome

    async def _give_back(self, held: HeldMessage) -> None:
        is_free: asyncio.Future[None] = self._loop.create_future()
        held.use(partial(_freed, held, is_free))
        await is_free
        if held.is_settled:
            return
        group, topic, _ = held.key
        command = change_request(held.handle, topic, group, GIVE_BACK_MS)
        await held.client.link(held.handle.broker_name).call_nowait(command, REQUEST_TIMEOUT_MS)


def _freed(held: HeldMessage, is_free: asyncio.Future[None]) -> None:
    if is_free.done():  # cancelled: it took too long
        held.release()
    else:
        is_free.set_result(None)
