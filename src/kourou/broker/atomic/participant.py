"""AtomicParticipant: keeps the parts of atomic publishes at this broker, and publishes or drops them.

STAGE (client)         the part is a record of the journal; answered when that is durable
END (coordinator)      published (publisher.py), or dropped; answered when that is durable
no decision in time    the coordinator is queried (overdue), again and again until it answers
program replaced       as if its time were over: it was fenced, and cannot decide any more
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.broker.atomic.answers import answer_put, check_master, decided_error, too_old_error
from kourou.broker.atomic.atomic_table import Participation
from kourou.broker.atomic.journal import Journal
from kourou.broker.atomic.journal_records import Finished, Staged
from kourou.broker.atomic.publisher import RETRY_S, AtomicPublisher
from kourou.broker.atomic.staging import StagingChecks
from kourou.broker.connection_state import record_born_host
from kourou.errors import KourouError, ProtocolError, RequestError, StorageError
from kourou.protocol.atomic import (
    MAX_PARTS,
    MAX_STAGED_BYTES,
    AtomicId,
    Outcome,
    StagedGroup,
    decode_parts,
    parse_atomic_id,
)
from kourou.protocol.bodies.atomic_list import AtomicEntry, AtomicState
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.atomic import (
    EndAtomicRequestHeader,
    EndAtomicResponseHeader,
    StageAtomicRequestHeader,
)
from kourou.protocol.producer_sequence import NAME_PREFIX
from kourou.store.log.put_status import PutStatus
from kourou.transport.request import Processor, Request
from kourou.wording import counted

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

MAX_PUBLISHES: Final = 10_000
"""Undecided publishes that a broker has parts of."""
MAX_TOTAL_BYTES: Final = 16 * 1024**3
"""Bytes of all parts at one broker."""
_KEPT_NOTICES: Final = 1_000

Query = Callable[[str, str], Awaitable[tuple[Outcome, list[int]]]]
"""Queries a coordinator, by name, for the outcome of a publish, and for the parts of this broker."""
EpochOf = Callable[[str, str], Awaitable[int]]
"""Queries a coordinator, by name, for the newest epoch of a producer."""


@dataclass(slots=True)
class _Ending:
    """A publish that is being published or dropped; `request` is answered when that is done."""

    request: Request | None
    is_commit: bool
    problem: str = ""
    notes: set[str] = field(default_factory=set)


class AtomicParticipant:
    """The parts of one broker."""

    def __init__(
        self,
        *,
        journal: Journal,
        checks: StagingChecks,
        admission: Admission,
        publisher: AtomicPublisher,
        tasks: TaskOwner,
        query: Query,
        epoch_of: EpochOf,
        now_ms: Callable[[], int],
        step: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._checks = checks
        self._admission = admission
        self._publisher = publisher
        self._tasks = tasks
        self._query = query
        self._epoch_of = epoch_of
        self.look_s = 5.0
        """How often coordinators are queried whether programs were replaced, and from which age on."""
        self._looked_s = 0.0
        self._now_ms = now_ms
        self._step = step
        self._staging: dict[tuple[str, int], list[Request]] = {}
        # Stored, but whether they are durable was not known in time: a repeat is stored again.
        self._doubtful: set[tuple[str, int]] = set()
        self._ending: dict[str, _Ending] = {}
        self._silent: set[str] = set()
        self.notices: deque[tuple[int, AtomicEntry]] = deque(maxlen=_KEPT_NOTICES)
        """Abandoned and incomplete publishes since the start, with their times."""
        journal.is_busy = self._ending.__contains__

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {RequestCode.STAGE_KOUROU_ATOMIC: self.stage, RequestCode.END_KOUROU_ATOMIC: self.end}

    def resume(self) -> None:
        """Go on with what was committed and not finished before the start."""
        for atomic_id, joined in self._journal.table.participations.items():
            for part in joined.parts.values():
                self._publisher.adopt_topics(part.topics)
            if joined.commit is not None:
                _log.info("atomic publish %s is committed and not finished: it continues", atomic_id)
                self._begin_end(atomic_id, joined.commit.parts, None)

    # -- staging -----------------------------------------------------------------------------------

    def stage(self, request: Request) -> None:
        """STAGE_KOUROU_ATOMIC: keep a part."""
        check_master(self._admission)
        header = request.header(StageAtomicRequestHeader)
        atomic_id = parse_atomic_id(header.kourou_atomic_id)
        key = str(atomic_id), header.kourou_part
        if key in self._staging:
            self._staging[key].append(request)
            return
        joined = self._journal.table.participations.get(key[0])
        if joined is not None and header.kourou_part in joined.parts and key not in self._doubtful:
            request.reply()
            return
        self._check_open(atomic_id, joined)
        groups, messages = self._checks.checked(request, header)
        self._check_limits(joined, groups)
        connection = request.connection
        now_ms = self._now_ms()
        record = Staged(
            key[0],
            header.kourou_part,
            header.kourou_coordinator,
            header.producer_group,
            now_ms,
            now_ms + header.kourou_timeout_ms,
            connection.state.born_host or record_born_host(connection),
            groups,
            messages,
        )
        self._journal.put(record, partial(self._staged, key))
        self._staging[key] = [request]
        self._journal.end_cycle_if_large()

    def _check_open(self, atomic_id: AtomicId, joined: Participation | None) -> None:
        """RequestError if the publish is over, or about to be."""
        table = self._journal.table.finished
        is_committed = table.of(atomic_id)
        if str(atomic_id) in self._ending or joined is not None and joined.commit is not None:
            is_committed = True
        if is_committed is not None:
            raise decided_error(atomic_id, is_commit=is_committed)
        finished = table.get(atomic_id.producer_id)
        if finished is None or finished.epoch < atomic_id.epoch:
            return
        if finished.epoch > atomic_id.epoch:
            raise RequestError(
                ResponseCode.KOUROU_PRODUCER_FENCED,
                f"atomic publish {atomic_id}: a newer program with this name has been opened (epoch "
                f"{finished.epoch}); this one must stop",
            )
        if finished.is_forgotten(atomic_id.number):
            raise too_old_error(atomic_id)

    def _check_limits(self, joined: Participation | None, groups: Sequence[StagedGroup]) -> None:
        table = self._journal.table
        size_bytes = sum(len(group.entries) for group in groups)
        problem = None
        if joined is None and len(table.participations) >= MAX_PUBLISHES:
            problem = f"{MAX_PUBLISHES} publishes are undecided at this broker"
        elif joined is not None and len(joined.parts) >= MAX_PARTS:
            problem = f"it has {MAX_PARTS} parts at this broker"
        elif joined is not None and joined.size_bytes + size_bytes > MAX_STAGED_BYTES:
            problem = f"its parts at this broker would have more than {MAX_STAGED_BYTES} bytes"
        elif table.staged_bytes + size_bytes > MAX_TOTAL_BYTES:
            problem = f"undecided parts at this broker would have more than {MAX_TOTAL_BYTES} bytes"
        if problem is not None:
            raise RequestError(ResponseCode.KOUROU_ATOMIC_LIMIT, f"atomic publish: {problem}")

    def _staged(self, key: tuple[str, int], status: PutStatus) -> None:
        requests = self._staging.pop(key)
        joined = self._journal.table.participations.get(key[0])
        is_first = joined is not None and len(joined.parts) == 1 and key not in self._doubtful
        self._journal.counts.begun += status.is_stored and is_first
        if status.is_durable:
            self._doubtful.discard(key)
            self._step("staged")
        elif status.is_stored:
            self._doubtful.add(key)
        for request in requests:
            answer_put(request, status)

    # -- the end -----------------------------------------------------------------------------------

    def end(self, request: Request) -> None:
        """END_KOUROU_ATOMIC: publish or drop the parts."""
        check_master(self._admission)
        header = request.header(EndAtomicRequestHeader)
        atomic_id = parse_atomic_id(header.kourou_atomic_id)
        parts = decode_parts(request.body) if header.kourou_commit else None
        was_commit = self._journal.table.finished.of(atomic_id)
        if was_commit is not None:
            if was_commit != header.kourou_commit:
                _log.error("atomic publish %s ended both ways: committed here %s", atomic_id, was_commit)
            request.reply(EndAtomicResponseHeader(kourou_is_known=True))
            return
        ending = self._ending.get(str(atomic_id))
        if ending is None:
            if str(atomic_id) not in self._journal.table.participations:
                _log.info("atomic publish %s ends, and this broker has no part of it", atomic_id)
            self._begin_end(str(atomic_id), parts, request)
            return
        if ending.request is not None:
            ending.request.error(ResponseCode.SYSTEM_BUSY, f"a newer request waits for {atomic_id}")
        ending.request = request

    def _begin_end(self, atomic_id: str, parts: Sequence[int] | None, request: Request | None) -> None:
        """Publish `parts`, or drop all: None."""
        self._ending[atomic_id] = _Ending(request, parts is not None)
        self._tasks.start(self._end(atomic_id, parts), f"atomic-{atomic_id}")

    async def _end(self, atomic_id: str, parts: Sequence[int] | None) -> None:
        ending = self._ending[atomic_id]
        try:
            is_known = atomic_id in self._journal.table.participations
            while True:
                try:
                    await self._end_once(atomic_id, parts)
                    break
                except (StorageError, ProtocolError) as error:
                    if str(error) != ending.problem:
                        _log.error("atomic publish %s cannot be finished, retrying: %s", atomic_id, error)
                    ending.problem = str(error)
                await asyncio.sleep(RETRY_S)
        finally:
            del self._ending[atomic_id]
        self._step("ended")
        if ending.request is not None:
            ending.request.reply(EndAtomicResponseHeader(kourou_is_known=is_known))

    async def _end_once(self, atomic_id: str, parts: Sequence[int] | None) -> None:
        """StorageError: to be tried again."""
        finished = Finished(atomic_id, parts is not None, self._now_ms())
        joined = self._journal.table.participations.get(atomic_id)
        if parts is None or joined is None:
            await self._publisher.finish(finished)
        else:
            incomplete = partial(self._note_incomplete, atomic_id, joined)
            await self._publisher.publish(joined, parts, finished, incomplete)

    # -- no decision in time -----------------------------------------------------------------------

    async def query_overdue(self) -> None:
        """Query the coordinators of publishes that have had no decision in time, and act on the answers.
        While a coordinator does not answer, its publishes stay as they are."""
        now_ms = self._now_ms()
        silent: set[str] = set()
        replaced = await self._replaced(now_ms)
        for atomic_id, joined in list(self._journal.table.participations.items()):
            coordinator = joined.coordinator
            is_due = joined.commit is None and (joined.deadline_ms <= now_ms or atomic_id in replaced)
            if not is_due or atomic_id in self._ending or coordinator in silent:
                continue
            try:
                outcome, parts = await self._query(coordinator, atomic_id)
            except KourouError as error:
                silent.add(coordinator)
                if coordinator not in self._silent:
                    _log.warning(
                        "atomic publish %s has no decision, and its coordinator %s does not answer; it is "
                        "kept, and the query is repeated: %s",
                        atomic_id,
                        coordinator,
                        error,
                    )
                continue
            if atomic_id not in self._journal.table.participations or atomic_id in self._ending:
                continue
            if outcome is Outcome.ROLLED_BACK:
                reason = "its program was replaced" if atomic_id in replaced else "there was none in time"
                _log.warning("atomic publish %s has no decision, %s: it is dropped", atomic_id, reason)
                self.notices.append((now_ms, self._entry(atomic_id, joined, AtomicState.ABANDONED, now_ms)))
            elif outcome is Outcome.OVER:
                _log.warning(
                    "atomic publish %s is over, and its coordinator %s expects nothing of this broker (its "
                    "parts were not among those committed, or an operator has given it up): %s dropped",
                    atomic_id,
                    coordinator,
                    counted(sum(part.messages for part in joined.parts.values()), "message"),
                )
            self._begin_end(atomic_id, parts if outcome is Outcome.COMMITTED else None, None)
        self._silent = silent

    async def _replaced(self, now_ms: int) -> set[str]:
        """Undecided publishes of names that newer programs have opened since, looked for now and then. A
        coordinator that does not answer is left out until the next time."""
        loop_s = asyncio.get_running_loop().time()
        if loop_s < self._looked_s + self.look_s:
            return set()
        self._looked_s = loop_s
        newest: dict[tuple[str, str], int] = {}
        silent: set[str] = set()
        found: set[str] = set()
        for text, joined in list(self._journal.table.participations.items()):
            atomic_id, coordinator = parse_atomic_id(text), joined.coordinator
            is_old = joined.commit is None and joined.staged_ms + self.look_s * 1000 <= now_ms
            if not is_old or not atomic_id.producer_id.startswith(NAME_PREFIX) or coordinator in silent:
                continue
            key = coordinator, atomic_id.producer_id
            try:
                if key not in newest:
                    newest[key] = await self._epoch_of(*key)
            except KourouError:
                silent.add(coordinator)
                continue
            if newest[key] > atomic_id.epoch:
                found.add(text)
        return found

    # -- listing -----------------------------------------------------------------------------------

    def entries(self) -> list[AtomicEntry]:
        """Publishes that are not over, and those that were abandoned or are incomplete."""
        now_ms = self._now_ms()
        found = []
        for atomic_id, joined in self._journal.table.participations.items():
            ending = self._ending.get(atomic_id)
            is_committed = joined.commit is not None or ending is not None and ending.is_commit
            state = AtomicState.COMMITTED if is_committed else AtomicState.UNDECIDED
            found.append(
                self._entry(atomic_id, joined, state, now_ms, "" if ending is None else ending.problem)
            )
        for at_ms, entry in self.notices:
            found.append(msgspec.structs.replace(entry, age_ms=entry.age_ms + now_ms - at_ms))
        return found

    def _entry(
        self, atomic_id: str, joined: Participation, state: AtomicState, now_ms: int, problem: str = ""
    ) -> AtomicEntry:
        parts = joined.parts.values()
        return AtomicEntry(
            atomic_id=atomic_id,
            state=state,
            coordinator=joined.coordinator,
            age_ms=max(0, now_ms - joined.staged_ms) if parts else 0,
            producer_group=joined.producer_group,
            topics=sorted({topic for part in parts for topic in part.topics}),
            parts=len(joined.parts),
            messages=sum(part.messages for part in parts),
            size_bytes=joined.size_bytes,
            problem=problem,
        )

    def _note_incomplete(self, atomic_id: str, joined: Participation, problem: str) -> None:
        ending = self._ending[atomic_id]
        if problem in ending.notes:
            return
        ending.notes.add(problem)
        now_ms = self._now_ms()
        _log.error("atomic publish %s is committed, and incomplete: %s", atomic_id, problem)
        entry = self._entry(atomic_id, joined, AtomicState.INCOMPLETE, now_ms, problem)
        self.notices.append((now_ms, entry))
