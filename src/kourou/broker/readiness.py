"""Whether clients can use a broker now: what `GET /readyz` of a broker means.

Decided by the broker's own state, which is exact without a write: `brokerPermission` has W, the store is
neither fenced nor out of space, no sync is overdue, enough slaves are in sync, not too much waits, the last
write went through, and a name server has taken a registration, if there is to be one.

After a failed write only the next one can show recovery: then a message is stored, in the topic that every
broker has under its own name, which is not consumed; the same one as `kourou ready` stores.

A slave serves consumers, also while its master is away: it is ready when a name server knows it, unless it
has stopped following its master for good.

Not here: start and stop, where a broker is never ready (controller.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.errors import RequestError
from kourou.protocol.message_id import encode_host
from kourou.store.log.put_status import PutRefusedError, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.admission import Admission
    from kourou.broker.registration.out_api import BrokerOuterApi
    from kourou.broker.replication.replica_status import ReplicaStatus
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.store.log.log_appender import LogAppender

_PROBE_BODY: Final = b"ready?"
_RUNBOOK: Final = 'docs/replication.md, "take the old master back as a slave", step 3'
_BORN_HOST: Final = encode_host("127.0.0.1", 0)


class Readiness:
    """Whether clients can use one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        admission: Admission,
        appender: LogAppender,
        commit_cycle: CommitCycle,
        writer: MessageWriter,
        out_api: BrokerOuterApi,
        replica_status: ReplicaStatus,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._admission = admission
        self._appender = appender
        self._commit_cycle = commit_cycle
        self._writer = writer
        self._out_api = out_api
        self._replica_status = replica_status
        self._now_ms = now_ms

    async def why_not_ready(self) -> str | None:
        """Why clients cannot use this broker now, in one line; None: they can."""
        if self._config.current.is_slave:
            return self._why_stopped() or self._why_unknown()
        why_not = self._why_closed() or self._why_unable() or self._why_unknown()
        if why_not is None and self._commit_cycle.write_problem is not None:
            return await self._why_not_stored()
        return why_not

    def _why_stopped(self) -> str | None:
        """Why a slave no longer follows its master."""
        problem = self._replica_status.why_stopped
        if problem is None:
            return None
        return f"it no longer follows its master: {problem} ({_RUNBOOK})"

    def _why_closed(self) -> str | None:
        """What the operator has said."""
        config = self._config.current
        if not self._admission.is_writable:
            return f"brokerPermission={config.broker_permission}: clients may not send to it"
        if not self._admission.is_accepting:
            since_ms = config.start_accept_send_request_time_stamp
            return f"startAcceptSendRequestTimeStamp={since_ms}: messages are refused until then"
        return None

    def _why_unable(self) -> str | None:
        """What the disk says."""
        refusal = self._appender.refusal
        if refusal is not None:
            return str(refusal)
        if self._commit_cycle.is_late:
            return "the disk is slow: a sync takes longer than syncFlushTimeout"
        if self._admission.replica_problem is not None:
            return f"too few slaves are in sync: {self._admission.replica_problem}"
        try:
            self._admission.check_room()
        except RequestError as error:
            return str(error)
        return None

    def _why_unknown(self) -> str | None:
        """What the name servers say."""
        config = self._config.current
        where = config.namesrv_addr or config.rmq_address_server_domain
        if where and not self._out_api.has_registered:
            return f"no name server knows this broker yet: {where}"
        return None

    async def _why_not_stored(self) -> str | None:
        """Store a message, as durable as a sender's; why that failed."""
        stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus, _: int, __: int) -> None:
            if not stored.done():  # the caller may have given up
                stored.set_result(status)

        topic = self._config.current.broker_name
        message = InnerMessage(topic, 0, _PROBE_BODY, "", self._now_ms(), _BORN_HOST)
        try:
            self._writer.put_now(message, done, wait=True)
        except PutRefusedError as error:
            return str(error)
        status = await stored
        return None if status is PutStatus.PUT_OK else (self._commit_cycle.write_problem or status.remark)
