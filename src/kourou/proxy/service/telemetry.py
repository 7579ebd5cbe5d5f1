"""Telemetry: the stream by which a client and the proxy tell each other what the other must know.

The client's first command is its settings, and it waits for the answer. Settings come again from time to
time; the proxy sends them by itself when the group of a consumer has changed. A failure ends the stream with
a gRPC status, as in Apache's proxy: a client that reads another status than OK in an answer waits forever.
Not here: commands on behalf of brokers (broker_requests.py).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from kourou.errors import KourouError
from kourou.proxy.access.grpc_login import ProxyAccess
from kourou.proxy.clients.client_settings import (
    ClientPolicy,
    ClientSettings,
    GroupRules,
    read_settings,
    settings_answer,
)
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.registry import ClientRegistry
from kourou.proxy.clients.telemetry_stream import TelemetryStream
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.statuses import StatusError, make_status, status_of
from kourou.proxy.service.heartbeats import Registrations
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    DecodeError,
    Settings,
    TelemetryCommand,
)
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_MAX_COMMAND_BYTES: Final = 4 * 1024 * 1024
"""Stack traces are the largest commands of clients."""
_MAX_SETTINGS_BYTES: Final = 256 * 1024
"""Settings are kept for as long as the client is there."""
_MAX_STREAMS: Final = 8
"""Streams of one client: one for each address by which it knows the proxy."""
_REFRESH_S: Final = 30.0


class Telemetry:
    """The streams of all clients."""

    def __init__(
        self,
        clients: ClientRegistry,
        brokers: Brokers,
        access: ProxyAccess,
        registrations: Registrations,
        tasks: TaskOwner,
        policy: ClientPolicy,
    ) -> None:
        self._clients = clients
        self._brokers = brokers
        self._access = access
        self._registrations = registrations
        self._tasks = tasks
        self._policy = policy

    def start(self) -> None:
        """Keep the settings of clients up to date."""
        self._tasks.start(self._refresh_forever(), "refresh settings")

    # -- the stream ------------------------------------------------------------------------------

    def telemetry(self, call: Call) -> None:
        """Telemetry."""
        try:
            stream = TelemetryStream(call, self._clients.of(call))
        except Exception as error:
            _fail(call, error)
            return
        call.on_message = partial(self._received, stream)
        call.on_half_close = stream.finish
        call.on_end = stream.ended

    def _received(self, stream: TelemetryStream, data: bytes) -> None:
        try:
            self._handle(stream, data)
        except Exception as error:
            _fail(stream.call, error)
            stream.ended()

    def _handle(self, stream: TelemetryStream, data: bytes) -> None:
        try:
            command = TelemetryCommand.FromString(data)
        except DecodeError as error:
            raise StatusError(Code.BAD_REQUEST, "the message is not a TelemetryCommand") from error
        kind = command.WhichOneof("command")
        if kind == "settings":
            _check_size("settings", data, _MAX_SETTINGS_BYTES)
            self._settings_received(stream, command.settings)
            return
        _check_size(f"command {kind}", data, _MAX_COMMAND_BYTES)
        if kind == "thread_stack_trace":
            stream.answered(command.thread_stack_trace.nonce, command)
        elif kind == "verify_message_result":
            stream.answered(command.verify_message_result.nonce, command)
        else:
            _log.debug("%s sends a command that is not for servers: %s", stream.client, kind)

    # -- settings --------------------------------------------------------------------------------

    def _settings_received(self, stream: TelemetryStream, sent: Settings) -> None:
        settings = read_settings(sent)
        self._access.check(stream.call, settings.needs)
        # Anew: a client that was away for long, or has terminated, comes back by its settings.
        client = self._clients.of(stream.call)
        stream.move_to(client)
        client.settings = settings
        if stream not in client.streams:
            client.streams.append(stream)
            if len(client.streams) > _MAX_STREAMS:
                client.streams[0].fail(
                    GrpcCode.RESOURCE_EXHAUSTED, f"the client has opened {_MAX_STREAMS} newer streams"
                )
        if not settings.is_consumer:
            self._answer(stream, settings, None)
            self._registrations.register_soon(client)
            return
        stream.unanswered = settings
        if not stream.is_answering:  # one task for a stream, however many settings it brings
            stream.is_answering = True
            self._tasks.start(self._answer_consumer(stream), f"settings of {client.client_id}")

    async def _answer_consumer(self, stream: TelemetryStream) -> None:
        try:
            while (settings := stream.unanswered) is not None:
                stream.unanswered = None
                client = stream.client
                client.rules = await self._current_rules(client, settings)
                self._answer(stream, settings, client.rules)
                self._registrations.register_soon(client)
        except Exception as error:
            _fail(stream.call, error)
            stream.ended()
        finally:
            stream.is_answering = False

    async def _current_rules(self, client: ProxyClient, settings: ClientSettings) -> GroupRules:
        try:
            return await self._rules(settings)
        except KourouError as error:
            if client.rules is None or client.rules.group != settings.group:
                raise
            # The brokers are away: what was true before holds.
            _log.info("the rules of group %s are not read anew: %s", settings.group, error)
            return client.rules

    async def _rules(self, settings: ClientSettings) -> GroupRules:
        """The rules of a group, from the brokers of one of its topics."""
        failure: KourouError | None = None
        for topic in settings.subscriptions:
            try:
                return GroupRules.of(settings.group, await self._brokers.group_config(topic, settings.group))
            except KourouError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return GroupRules.of(settings.group, None)

    def _answer(self, stream: TelemetryStream, settings: ClientSettings, rules: GroupRules | None) -> None:
        answer = settings_answer(settings, rules, self._policy)
        stream.send(TelemetryCommand(status=make_status(Code.OK), settings=answer))

    # -- what the proxy sends by itself ----------------------------------------------------------

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Send their settings to the consumers whose groups have changed."""
        for client in self._clients:
            settings = client.settings
            if settings is None or not settings.subscriptions or client.rules is None:
                continue
            try:
                rules = await self._rules(settings)
            except KourouError as error:
                _log.info("settings of group %s are not read anew: %s", settings.group, error)
                continue
            if rules != client.rules and client.settings is settings:
                client.rules = rules
                for stream in list(client.streams):
                    self._answer(stream, settings, rules)


def current_stream(client: ProxyClient) -> TelemetryStream:
    """The stream for commands to a client. StatusError: it has none."""
    if not client.streams:
        raise StatusError(Code.NOT_FOUND, f"{client} has no Telemetry stream at present")
    return client.streams[-1]


def _check_size(what: str, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise StatusError(
            Code.PAYLOAD_TOO_LARGE, f"{what}: {len(data)} bytes are more than the {limit} allowed"
        )


def _fail(call: Call, error: BaseException) -> None:
    status = status_of(error)
    call.fail(_grpc_code(status.code), status.message)


def _grpc_code(code: int) -> GrpcCode:
    if code in (Code.UNSUPPORTED, Code.NOT_IMPLEMENTED):
        return GrpcCode.UNIMPLEMENTED
    return GrpcCode.INVALID_ARGUMENT if 40000 <= code < 50000 else GrpcCode.INTERNAL
