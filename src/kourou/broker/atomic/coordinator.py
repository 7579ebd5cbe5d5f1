"""AtomicCoordinator: decides atomic publishes, once each, and has all participants act on it.

A decision is one record of the journal. When it is durable, the program has its answer, and the participants
are informed (END_KOUROU_ATOMIC) until each has confirmed. A producer's publishes are ended in the order of
their decisions at each broker. Outcomes are kept for repeats (MAX_OPEN of each producer). A publish that a
participant queries and that is undecided is rolled back: its time is over, or a newer program has fenced its
own.

The last batch of a sink is part of the decision record: a batch that is committed twice is published once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.atomic.answers import answer_put, check_master, decided_error, too_old_error
from kourou.broker.atomic.journal import Journal
from kourou.broker.atomic.journal_records import Decided, Ended, NameClaimed
from kourou.errors import KourouError, RequestError, StorageError
from kourou.protocol.atomic import (
    MAX_BROKER_NAME,
    MAX_SINK_TEXT,
    AtomicId,
    Outcome,
    decode_participants,
    encode_parts,
    parse_atomic_id,
)
from kourou.protocol.bodies.atomic_list import AtomicEntry, AtomicState
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.atomic import (
    AtomicOutcomeResponseHeader,
    DecideAtomicRequestHeader,
    EndAtomicRequestHeader,
    ForgetAtomicRequestHeader,
    ForgetAtomicResponseHeader,
    GetAtomicCoordinatorRequestHeader,
    GetAtomicCoordinatorResponseHeader,
    GetSinkRequestHeader,
    GetSinkResponseHeader,
    QueryAtomicRequestHeader,
)
from kourou.protocol.producer_sequence import check_producer_name
from kourou.store.log.put_status import PutStatus
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.atomic.peers import BrokerPeers
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

MAX_DECISIONS: Final = 100_000
"""Decisions that some participant has not confirmed yet."""
_MAX_PARTICIPANTS: Final = 1_000
_MAX_NAMES: Final = 100_000
_RETRY_S: Final = 1.0
_CONCURRENT: Final = 32


class AtomicCoordinator:
    """The decisions of one broker. `epoch_of` gives the epoch of an idempotent producer, None if it is not
    known."""

    def __init__(
        self,
        *,
        journal: Journal,
        admission: Admission,
        peers: BrokerPeers,
        epoch_of: Callable[[str], int | None],
        broker_name: str,
        tasks: TaskOwner,
        requests: TaskOwner,
        now_ms: Callable[[], int],
        step: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._admission = admission
        self._peers = peers
        self._epoch_of = epoch_of
        self._broker_name = broker_name
        self._tasks = tasks
        self._requests = requests
        self._now_ms = now_ms
        self._step = step
        # Decisions on their way to the log, and sinks that they are for.
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._doubtful: set[str] = set()
        self._outboxes: dict[str, dict[str, None]] = {}

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.DECIDE_KOUROU_ATOMIC: self.decide,
            RequestCode.QUERY_KOUROU_ATOMIC: self.query,
            RequestCode.GET_KOUROU_ATOMIC_COORDINATOR: self.get_coordinator,
            RequestCode.GET_KOUROU_SINK: self.get_sink,
            RequestCode.FORGET_KOUROU_ATOMIC: self.forget,
        }

    def resume(self) -> None:
        """Inform participants of decisions that were not confirmed before the start."""
        for atomic_id in self._journal.table.decisions:
            self._inform(atomic_id)

    # -- decisions ---------------------------------------------------------------------------------

    def decide(self, request: Request) -> None:
        """DECIDE_KOUROU_ATOMIC: commit or roll back; answered when the decision is durable."""
        check_master(self._admission)
        header = request.header(DecideAtomicRequestHeader)
        atomic_id = parse_atomic_id(header.kourou_atomic_id)
        _check_sink(header)
        pending = self._pending_of(atomic_id, header.kourou_sink_id)
        if pending is not None:
            run_request(self._requests, request, self._decide_later(request, pending))
            return
        is_commit = self._outcome(atomic_id)
        if is_commit is None:
            self._decide_first(request, header, atomic_id)
        elif str(atomic_id) in self._doubtful:
            self._decide_again(request, atomic_id, is_commit)
        elif is_commit != header.kourou_commit:
            raise decided_error(atomic_id, is_commit=is_commit)
        else:
            request.reply(_outcome_header(is_commit))

    async def _decide_later(self, request: Request, pending: asyncio.Future[None]) -> None:
        await asyncio.shield(pending)
        self.decide(request)

    def _pending_of(self, atomic_id: AtomicId, sink_id: str | None) -> asyncio.Future[None] | None:
        pending = self._pending.get(str(atomic_id))
        if pending is None and sink_id is not None:
            pending = self._pending.get(_sink_key(sink_id))
        return pending

    def _outcome(self, atomic_id: AtomicId) -> bool | None:
        """Whether a publish is committed; None: it is undecided, or too old."""
        decision = self._journal.table.decisions.get(str(atomic_id))
        return self._journal.table.outcomes.of(atomic_id) if decision is None else decision.record.is_commit

    def _decide_first(self, request: Request, header: DecideAtomicRequestHeader, atomic_id: AtomicId) -> None:
        participants = decode_participants(request.body)
        self._check_producer(atomic_id)
        kept = self._journal.table.outcomes.get(atomic_id.producer_id)
        if kept is not None and kept.epoch == atomic_id.epoch and kept.is_forgotten(atomic_id.number):
            raise too_old_error(atomic_id)
        if len(participants) > _MAX_PARTICIPANTS or len(self._journal.table.decisions) >= MAX_DECISIONS:
            raise RequestError(
                ResponseCode.KOUROU_ATOMIC_LIMIT,
                f"atomic publish {atomic_id}: {len(participants)} brokers take part ({_MAX_PARTICIPANTS} are "
                f"allowed), {len(self._journal.table.decisions)} decisions wait for brokers "
                f"({MAX_DECISIONS} are allowed)",
            )
        if header.kourou_commit and header.kourou_sink_id is not None and self._has_batch(header):
            request.reply(AtomicOutcomeResponseHeader(kourou_outcome=Outcome.ALREADY_COMMITTED))
            return
        record = Decided(
            str(atomic_id), header.kourou_commit, participants, self._now_ms(), False, *_sink_of(header)
        )
        self._put(record, partial(self._answer_decided, request, record.is_commit))

    def _decide_again(self, request: Request, atomic_id: AtomicId, is_commit: bool) -> None:
        """Store a decision once more that is stored, and perhaps not durable."""
        decision = self._journal.table.decisions.get(str(atomic_id))
        participants = {} if decision is None else decision.record.participants
        record = Decided(str(atomic_id), is_commit, participants, self._now_ms())
        self._put(record, lambda status: self._decided_again(request, status))

    def _decided_again(self, request: Request, status: PutStatus) -> None:
        if status.is_durable:
            asyncio.get_running_loop().call_soon(self._retry, request)
        else:
            answer_put(request, status)

    def _retry(self, request: Request) -> None:
        try:
            self.decide(request)
        except KourouError as error:
            request.fail(error)

    def _check_producer(self, atomic_id: AtomicId) -> None:
        epoch = self._epoch_of(atomic_id.producer_id)
        if epoch is None:
            raise RequestError(
                ResponseCode.KOUROU_UNKNOWN_PRODUCER,
                f"atomic publish {atomic_id}: producer {atomic_id.producer_id} was not opened at this "
                "broker, or has expired",
            )
        if atomic_id.epoch < epoch:
            raise RequestError(
                ResponseCode.KOUROU_PRODUCER_FENCED,
                f"atomic publish {atomic_id}: a newer program with this name has been opened (epoch "
                f"{epoch}); this one must stop",
            )
        if atomic_id.epoch > epoch:
            raise RequestError(
                ResponseCode.KOUROU_UNKNOWN_EPOCH,
                f"atomic publish {atomic_id}: epoch {epoch} is the newest that was opened",
            )

    def _has_batch(self, header: DecideAtomicRequestHeader) -> bool:
        """Whether a sink has this batch already. RequestError: it belongs to another query."""
        sink = self._journal.table.sinks.get(header.kourou_sink_id or "")
        if sink is None or sink.query_id != header.kourou_query_id and header.kourou_replace_query:
            return False
        if sink.query_id != header.kourou_query_id:
            raise RequestError(
                ResponseCode.KOUROU_SINK_OTHER_QUERY,
                f"sink {header.kourou_sink_id!r} belongs to query {sink.query_id!r}, whose last batch is "
                f"{sink.batch_id}; this is query {header.kourou_query_id!r}. A query that continues needs "
                "the checkpoint of the old one; a new query needs a sink id of its own, or has to replace "
                "the old one",
            )
        return header.kourou_batch_id is not None and header.kourou_batch_id <= sink.batch_id

    def _put(self, record: Decided, done: Callable[[PutStatus], None]) -> None:
        pending = asyncio.get_running_loop().create_future()
        self._journal.put(record, partial(self._stored, record, pending, done))
        self._pending[record.atomic_id] = pending
        if record.sink_id is not None:
            self._pending[_sink_key(record.sink_id)] = pending

    def _stored(
        self,
        record: Decided,
        pending: asyncio.Future[None],
        done: Callable[[PutStatus], None],
        status: PutStatus,
    ) -> None:
        del self._pending[record.atomic_id]
        if record.sink_id is not None:
            del self._pending[_sink_key(record.sink_id)]
        pending.set_result(None)
        if status.is_durable:
            self._doubtful.discard(record.atomic_id)
            self._step("decided")
            if record.atomic_id in self._journal.table.decisions:
                self._inform(record.atomic_id)
        elif status.is_stored:
            self._doubtful.add(record.atomic_id)
        done(status)

    def _answer_decided(self, request: Request, is_commit: bool, status: PutStatus) -> None:
        counts = self._journal.counts
        counts.committed += status.is_stored and is_commit
        counts.rolled_back += status.is_stored and not is_commit
        answer_put(request, status, _outcome_header(is_commit))

    # -- participants ------------------------------------------------------------------------------

    def _inform(self, atomic_id: str) -> None:
        """Inform all participants of a decision, in the background."""
        for broker_name in self._journal.table.decisions[atomic_id].waits_for:
            outbox = self._outboxes.get(broker_name)
            if outbox is None:
                outbox = self._outboxes[broker_name] = {}
                self._tasks.start(self._send_outbox(broker_name, outbox), f"atomic-outbox-{broker_name}")
            outbox[atomic_id] = None

    async def _send_outbox(self, broker_name: str, outbox: dict[str, None]) -> None:
        problem = ""
        while outbox:
            results = await asyncio.gather(
                *(self._end_at(broker_name, outbox, atomic_id) for atomic_id in _first_of_each(outbox))
            )
            failed = next((result for result in results if result), "")
            if failed and not problem:
                _log.warning("broker %s is not informed of decisions, retrying: %s", broker_name, failed)
            problem = failed
            if problem:
                await asyncio.sleep(_RETRY_S)
        del self._outboxes[broker_name]

    async def _end_at(self, broker_name: str, outbox: dict[str, None], atomic_id: str) -> str:
        """Have a broker act on a decision; what the problem is, empty: none."""
        decision = self._journal.table.decisions.get(atomic_id)
        if decision is not None and broker_name in decision.waits_for:
            header = EndAtomicRequestHeader(
                kourou_atomic_id=atomic_id, kourou_commit=decision.record.is_commit
            )
            body = encode_parts(decision.record.participants.get(broker_name, ()))
            try:
                await self._peers.call(broker_name, RequestCode.END_KOUROU_ATOMIC, header, body)
            except KourouError as error:
                return str(error)
            self._confirmed(atomic_id, broker_name)
        outbox.pop(atomic_id, None)
        return ""

    def _confirmed(self, atomic_id: str, broker_name: str) -> None:
        decision = self._journal.table.decisions.get(atomic_id)
        if decision is None:
            return
        decision.waits_for.discard(broker_name)
        if decision.waits_for:
            return
        try:
            self._journal.put(Ended(atomic_id))
        except StorageError as error:
            # Kept as it is: participants confirm once more after the next start.
            _log.warning("atomic publish %s: its end is not recorded: %s", atomic_id, error)

    def forget(self, request: Request) -> None:
        """FORGET_KOUROU_ATOMIC: decisions wait no longer for a broker; answered when that is durable."""
        check_master(self._admission)
        run_request(self._requests, request, self._forget(request))

    async def _forget(self, request: Request) -> None:
        broker_name = request.header(ForgetAtomicRequestHeader).kourou_broker_name
        decisions = self._journal.table.decisions
        # One that is not durable yet is left to the next request.
        waiting = [
            atomic_id
            for atomic_id, decision in decisions.items()
            if broker_name in decision.waits_for and atomic_id not in self._pending
        ]
        for begin in range(0, len(waiting), _CONCURRENT):
            chunk = waiting[begin : begin + _CONCURRENT]
            await asyncio.gather(*(self._give_up(atomic_id, broker_name) for atomic_id in chunk))
        request.reply(ForgetAtomicResponseHeader(kourou_decisions=len(waiting)))

    async def _give_up(self, atomic_id: str, broker_name: str) -> None:
        decision = self._journal.table.decisions.get(atomic_id)
        if decision is None:
            return  # over meanwhile
        record = decision.record
        others = {name: parts for name, parts in record.participants.items() if name != broker_name}
        kept = Decided(atomic_id, record.is_commit, others, record.decided_ms, record.is_abandoned)
        if not (status := await self._journal.write(kept)).is_durable:
            raise StorageError(status.remark or status.name)
        if atomic_id in self._journal.table.decisions:
            self._inform(atomic_id)
        outcome = "committed" if record.is_commit else "rolled back"
        _log.warning(
            "atomic publish %s, %s: broker %s is given up, as requested", atomic_id, outcome, broker_name
        )

    # -- queries of participants -------------------------------------------------------------------

    def query(self, request: Request) -> None:
        """QUERY_KOUROU_ATOMIC: the outcome of a publish whose time is over."""
        check_master(self._admission)
        run_request(self._requests, request, self._query(request))

    async def _query(self, request: Request) -> None:
        header = request.header(QueryAtomicRequestHeader)
        outcome, parts = await self.outcome_for(header.kourou_broker_name, header.kourou_atomic_id)
        request.reply(AtomicOutcomeResponseHeader(kourou_outcome=outcome), encode_parts(parts))

    async def outcome_for(self, broker_name: str, text: str) -> tuple[Outcome, list[int]]:
        """The outcome for one participant, and the parts that it has to publish; an undecided publish is
        rolled back first. KourouError: that could not be stored."""
        atomic_id = parse_atomic_id(text)
        table = self._journal.table
        while (pending := self._pending.get(text)) is not None:
            await asyncio.shield(pending)
        if text in self._doubtful:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"the decision of {text} is not durable yet")
        decision = table.decisions.get(text)
        if decision is not None and decision.record.is_commit:
            if broker_name in decision.waits_for:
                return Outcome.COMMITTED, decision.record.participants[broker_name]
            return Outcome.OVER, []
        is_commit = self._outcome(atomic_id)
        if is_commit is not None:
            return (Outcome.OVER if is_commit else Outcome.ROLLED_BACK), []
        kept = table.outcomes.get(atomic_id.producer_id)
        if kept is not None and kept.epoch == atomic_id.epoch and kept.is_forgotten(atomic_id.number):
            return Outcome.OVER, []
        stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._put(Decided(text, False, {}, self._now_ms(), is_abandoned=True), stored.set_result)
        if not (status := await stored).is_durable:
            raise StorageError(status.remark or status.name)
        self._journal.counts.abandoned += 1
        is_replaced = (self._epoch_of(atomic_id.producer_id) or 0) > atomic_id.epoch
        reason = "its program was replaced" if is_replaced else "it was not decided in time"
        _log.warning("atomic publish %s is rolled back: %s", text, reason)
        return Outcome.ROLLED_BACK, []

    # -- names and sinks ---------------------------------------------------------------------------

    def get_coordinator(self, request: Request) -> None:
        """GET_KOUROU_ATOMIC_COORDINATOR: which broker coordinates a named producer."""
        check_master(self._admission)
        header = request.header(GetAtomicCoordinatorRequestHeader)
        name, coordinator, names = header.kourou_name, header.kourou_coordinator, self._journal.table.names
        if name in names or coordinator is None:
            known = names[name].broker_name if name in names else None
            request.reply(GetAtomicCoordinatorResponseHeader(kourou_coordinator=known))
            return
        try:
            check_producer_name(name)
        except ValueError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if len(names) >= _MAX_NAMES or not 0 < len(coordinator) <= MAX_BROKER_NAME:
            raise RequestError(
                ResponseCode.KOUROU_ATOMIC_LIMIT,
                f"this broker knows the coordinators of {len(names)} names, {_MAX_NAMES} are allowed; the "
                f"name of a coordinator has 1 to {MAX_BROKER_NAME} characters",
            )
        answer = GetAtomicCoordinatorResponseHeader(kourou_coordinator=coordinator)
        self._journal.put(NameClaimed(name, coordinator), lambda status: answer_put(request, status, answer))

    def get_sink(self, request: Request) -> None:
        """GET_KOUROU_SINK: the last batch of a sink."""
        check_master(self._admission)
        sink_id = request.header(GetSinkRequestHeader).kourou_sink_id
        pending = self._pending.get(_sink_key(sink_id))
        if pending is not None:
            run_request(self._requests, request, self._get_sink_later(request, pending))
            return
        sink = self._journal.table.sinks.get(sink_id)
        if sink is None:
            request.reply(GetSinkResponseHeader())
        else:
            request.reply(GetSinkResponseHeader(kourou_query_id=sink.query_id, kourou_batch_id=sink.batch_id))

    async def _get_sink_later(self, request: Request, pending: asyncio.Future[None]) -> None:
        await asyncio.shield(pending)
        self.get_sink(request)

    # -- listing -----------------------------------------------------------------------------------

    def entries(self) -> list[AtomicEntry]:
        """Decisions that some participants have not confirmed."""
        now_ms = self._now_ms()
        return [
            AtomicEntry(
                atomic_id=atomic_id,
                state=AtomicState.DECIDED,
                coordinator=self._broker_name,
                age_ms=max(0, now_ms - decision.record.decided_ms),
                parts=sum(len(parts) for parts in decision.record.participants.values()),
                waits_for=sorted(decision.waits_for),
            )
            for atomic_id, decision in self._journal.table.decisions.items()
        ]


def _first_of_each(outbox: dict[str, None]) -> list[str]:
    """The oldest decision of each producer, so that its publishes are ended one after the other."""
    first: dict[str, str] = {}
    for atomic_id in outbox:
        first.setdefault(atomic_id.partition(":")[0], atomic_id)
        if len(first) == _CONCURRENT:
            break
    return list(first.values())


def _sink_key(sink_id: str) -> str:
    # No id of a publish begins so.
    return f"sink:{sink_id}"


def _sink_of(header: DecideAtomicRequestHeader) -> tuple[str | None, str, int]:
    if header.kourou_sink_id is None:
        return None, "", -1
    return header.kourou_sink_id, header.kourou_query_id or "", header.kourou_batch_id or 0


def _check_sink(header: DecideAtomicRequestHeader) -> None:
    sink_id, query_id, batch_id = header.kourou_sink_id, header.kourou_query_id, header.kourou_batch_id
    if sink_id is None:
        return
    if not 0 < len(sink_id) <= MAX_SINK_TEXT or not query_id or len(query_id) > MAX_SINK_TEXT:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"the ids of a sink and its query are texts of 1 to {MAX_SINK_TEXT} characters",
        )
    if batch_id is None or batch_id < 0:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, "a decision with a sink id needs a batch id, from 0 on"
        )


def _outcome_header(is_commit: bool) -> AtomicOutcomeResponseHeader:
    return AtomicOutcomeResponseHeader(kourou_outcome=Outcome.COMMITTED if is_commit else Outcome.ROLLED_BACK)
