"""TelemetryStream: one open stream of a client, and the commands over it that wait for an answer.

Answers name the nonce of their command. A client that does not read its stream is disconnected from it once
too much is unsent; it opens another one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import Final

from kourou.proxy.clients.client_settings import ClientSettings
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, TelemetryCommand

_log = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 8 * 1024 * 1024
"""Room for some messages of the largest size: orphaned transactions are shown whole."""
_MAX_WAITING: Final = 64
_nonces: Final = itertools.count(1)


class TelemetryStream:
    """One stream. It is usable once the client has sent settings over it."""

    __slots__ = ("_loop", "_waiting", "call", "client", "is_answering", "unanswered")

    def __init__(self, call: Call, client: ProxyClient) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[TelemetryCommand]] = {}
        self.call = call
        self.client = client
        self.unanswered: ClientSettings | None = None
        """The latest settings, until they are being answered."""
        self.is_answering = False

    def move_to(self, client: ProxyClient) -> None:
        """Whose stream it is; another client's only if access control has been switched on or off."""
        if client is not self.client:
            if self in self.client.streams:
                self.client.streams.remove(self)
            self.client = client

    def send(self, command: TelemetryCommand) -> None:
        """Send a command that has no answer."""
        call = self.call
        if call.unsent_bytes > MAX_UNSENT_BYTES:
            _log.warning("%s does not read its Telemetry stream", self.client)
            self.fail(GrpcCode.RESOURCE_EXHAUSTED, "the client does not read its Telemetry stream")
            return
        call.send(command.SerializeToString())

    def ask(
        self, nonce: str, command: TelemetryCommand, timeout_s: float
    ) -> asyncio.Future[TelemetryCommand]:
        """Send a command with that nonce. The future gets the answer, or a StatusError."""
        answer: asyncio.Future[TelemetryCommand] = self._loop.create_future()
        if len(self._waiting) >= _MAX_WAITING:
            answer.set_exception(
                StatusError(
                    Code.TOO_MANY_REQUESTS, f"{_MAX_WAITING} commands to {self.client} have no answer yet"
                )
            )
            return answer
        self._waiting[nonce] = answer
        timer = self._loop.call_later(timeout_s, partial(self._expire, nonce, timeout_s))
        answer.add_done_callback(lambda _: timer.cancel())
        self.send(command)
        return answer

    def answered(self, nonce: str, command: TelemetryCommand) -> None:
        """The client has answered a command."""
        answer = self._waiting.pop(nonce, None)
        if answer is None:
            _log.debug("%s answers a command that does not wait: %.40r", self.client, nonce)
        elif not answer.done():
            answer.set_result(command)

    def fail(self, code: GrpcCode, text: str) -> None:
        """End the stream with an error."""
        self.call.fail(code, text)
        self.ended()

    def finish(self) -> None:
        """End the stream."""
        self.call.finish()
        self.ended()

    def ended(self) -> None:
        """The stream is over; what waits for answers fails."""
        if self in self.client.streams:
            self.client.streams.remove(self)
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(
                    StatusError(Code.INTERNAL_ERROR, f"the stream of {self.client} has ended")
                )

    def _expire(self, nonce: str, timeout_s: float) -> None:
        answer = self._waiting.pop(nonce, None)
        if answer is not None and not answer.done():
            answer.set_exception(
                StatusError(Code.PROXY_TIMEOUT, f"{self.client} has not answered within {timeout_s:g} s")
            )


def new_nonce() -> str:
    """A nonce that no other command has."""
    return f"{next(_nonces):x}"
