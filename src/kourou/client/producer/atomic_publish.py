"""AtomicPublish: one atomic publish: stages parts at brokers, and decides at the coordinator.

Every request is repeated until the broker has answered: brokers recognise a repeat. The handle (coordinator,
id and deadline) is all that another process needs to stage parts of the same publish.
Not here: where ids come from (atomic_sessions.py), messages to parts (atomic_batch.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.producer_options import ProducerOptions
from kourou.errors import (
    AtomicRolledBackError,
    AtomicUndecidedError,
    CallTimeoutError,
    ClientError,
    ConnectError,
    KourouError,
    LimitError,
    ProducerFencedError,
    ProtocolError,
    RemotingError,
    ResponseError,
    SinkTakenError,
)
from kourou.protocol.atomic import (
    Outcome,
    StagedGroup,
    encode_groups,
    encode_participants,
    parse_atomic_id,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.atomic import (
    AtomicOutcomeResponseHeader,
    DecideAtomicRequestHeader,
    StageAtomicRequestHeader,
)
from kourou.protocol.headers.command_header import CommandHeader

_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_ATTEMPT_TIMEOUT_MS: Final = 5_000
# Codes that say that the broker has not taken the request now, and may later.
_BUSY_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
# After an unknown error, too, a decision may have been stored.
_UNDECIDED_CODES: Final = _BUSY_CODES | {ResponseCode.SYSTEM_ERROR}


@dataclass(frozen=True, slots=True)
class AtomicHandle:
    """What identifies an atomic publish. Other processes may use it; their clocks have to agree roughly."""

    coordinator: str
    """The name of the broker that decides."""
    atomic_id: str
    deadline_ms: int
    """In milliseconds since 1970: without a decision until then, the publish is rolled back."""

    @property
    def left_ms(self) -> int:
        """The time until the deadline."""
        return self.deadline_ms - int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A batch that a sink commits once: the coordinator keeps query and last batch of each sink."""

    sink_id: str
    query_id: str
    batch_id: int
    replaces_query: bool = False
    """Whether the sink may belong to another query, which this one replaces."""


class AtomicPublish:
    """One atomic publish of a producer, or of another process that got the handle."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        handle: AtomicHandle,
        decided: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        parse_atomic_id(handle.atomic_id)
        self._decided = decided
        self._instance = instance
        self._group = group
        self._options = options
        self.handle = handle

    async def stage(self, broker_name: str, part: int, groups: Sequence[StagedGroup]) -> None:
        """Have a broker keep a part, on return durably, until the publish is decided. `part` is a number that
        is unique for the publish and the broker; a part that is staged again is kept once.

        AtomicRolledBackError: the publish is over. ResponseError: the broker refuses the part.
        AtomicUndecidedError: no broker of that name has answered in time, and the part may be staged.
        """
        handle = self.handle
        if handle.left_ms <= 0:
            raise AtomicRolledBackError(
                handle.atomic_id,
                f"atomic publish {handle.atomic_id} was not committed within its timeout_ms",
            )
        header = StageAtomicRequestHeader(
            producer_group=self._group,
            kourou_atomic_id=handle.atomic_id,
            kourou_part=part,
            kourou_coordinator=handle.coordinator,
            kourou_timeout_ms=max(1, handle.left_ms),
            default_topic=self._options.create_topic_key,
            default_topic_queue_nums=self._options.default_topic_queue_nums,
        )
        body = encode_groups(groups)
        await self._request(broker_name, RequestCode.STAGE_KOUROU_ATOMIC, header, body, handle.left_ms)

    async def commit(
        self, participants: Mapping[str, Sequence[int]], *, sink: SinkBatch | None = None
    ) -> Outcome:
        """Commit: `participants` has the parts of each broker in the order in which they are published;
        other parts are dropped. On return the decision is durable, and the brokers publish within a second.

        The outcome is COMMITTED, or with `sink` ALREADY_COMMITTED if the sink has this batch: nothing of this
        publish is published then. A commit may be repeated.

        AtomicRolledBackError: nothing is published. AtomicUndecidedError: the outcome is not known.
        ProducerFencedError, SinkTakenError, ResponseError: refused, nothing is published.
        """
        # A coordinator that was away answers definitely after the deadline, too.
        return await self._decide(True, participants, sink, max(self.handle.left_ms, _ATTEMPT_TIMEOUT_MS))

    async def roll_back(
        self, participants: Mapping[str, Sequence[int]], *, timeout_ms: int = _ATTEMPT_TIMEOUT_MS
    ) -> None:
        """Roll back: nothing is published. If that fails, the coordinator does it after the deadline.
        ResponseError: the publish is committed, or the coordinator refuses. AtomicUndecidedError."""
        await self._decide(False, participants, None, timeout_ms)

    async def _decide(
        self,
        is_commit: bool,
        participants: Mapping[str, Sequence[int]],
        sink: SinkBatch | None,
        timeout_ms: int,
    ) -> Outcome:
        header = DecideAtomicRequestHeader(
            kourou_atomic_id=self.handle.atomic_id,
            kourou_commit=is_commit,
            kourou_sink_id=None if sink is None else sink.sink_id,
            kourou_query_id=None if sink is None else sink.query_id,
            kourou_batch_id=None if sink is None else sink.batch_id,
            kourou_replace_query=sink is not None and sink.replaces_query,
        )
        body = encode_participants(participants)
        code = RequestCode.DECIDE_KOUROU_ATOMIC
        answer = await self._request(self.handle.coordinator, code, header, body, timeout_ms)
        if self._decided is not None:
            await self._decided()
        text = answer.header(AtomicOutcomeResponseHeader).kourou_outcome
        try:
            return Outcome(text)
        except ValueError:
            raise ProtocolError(f"atomic publish {self.handle.atomic_id}: outcome {text!r}") from None

    async def _request(
        self, broker_name: str, code: RequestCode, header: CommandHeader, body: bytes, timeout_ms: int
    ) -> RemotingCommand:
        """The answer of the master of a broker name, repeated until there is one."""
        is_decision = code == RequestCode.DECIDE_KOUROU_ATOMIC
        retry_codes = _UNDECIDED_CODES if is_decision else _BUSY_CODES
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_ms / 1000, _PAUSE_S
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            try:
                return await self._attempt(broker_name, code, header, body, max(1, left_ms))
            except (RemotingError, ResponseError, ClientError) as error:
                if isinstance(error, ResponseError) and error.code not in retry_codes:
                    raise self._refused(error) from None
                wait_s = (isinstance(error, LimitError) and error.wait_s) or 0.0
                if loop.time() + max(pause, wait_s) >= deadline:
                    raise AtomicUndecidedError(self.handle.atomic_id, broker_name, str(error)) from error
            await asyncio.sleep(max(pause, wait_s))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            await self._find_brokers()

    async def _attempt(
        self, broker_name: str, code: RequestCode, header: CommandHeader, body: bytes, timeout_ms: int
    ) -> RemotingCommand:
        routes, api = self._instance.routes, self._instance.api
        if routes.master(broker_name) is None:
            await routes.add_all_brokers()
        address = routes.master(broker_name)
        if address is None:
            raise ConnectError(f"broker {broker_name!r}", "the name server knows no master of that name")
        try:
            return await api.call(address, code, header, body, min(timeout_ms, _ATTEMPT_TIMEOUT_MS))
        except CallTimeoutError as error:
            if timeout_ms > _ATTEMPT_TIMEOUT_MS:
                api.remoting.close_connection(address, str(error))
            raise

    async def _find_brokers(self) -> None:
        """The master may be another one by now."""
        try:
            await self._instance.routes.add_all_brokers()
        except KourouError:
            return  # the next attempt reports what is wrong

    def _refused(self, error: ResponseError) -> KourouError:
        atomic_id = self.handle.atomic_id
        if error.code == ResponseCode.KOUROU_ATOMIC_ROLLED_BACK:
            return AtomicRolledBackError(atomic_id, error.remark)
        if error.code == ResponseCode.KOUROU_UNKNOWN_PRODUCER:
            return AtomicRolledBackError(atomic_id, error.remark, is_producer_unknown=True)
        if error.code == ResponseCode.KOUROU_PRODUCER_FENCED:
            fenced = ProducerFencedError("", error.remark)
            fenced.args = (error.remark,)
            return fenced
        if error.code == ResponseCode.KOUROU_SINK_OTHER_QUERY:
            return SinkTakenError(error.remark)
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return ClientError(
                f"the broker at {error.address} does not support atomic publishes, which need brokers of "
                "Kourou"
            )
        return error
