"""POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO on the wire: headers, connections, answers.

Not here: what is done (pop_service.py, peeks.py, notices.py), acknowledgements (ack_processor.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_answer import FOUND, NO_MESSAGE, PopResult, answer_pop, nothing, response_header
from kourou.broker.pop.pop_polling import ANY_QUEUE
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from kourou.protocol.layout import Buffer
from kourou.transport.dispatcher import answer_failure
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission, Ruling
    from kourou.broker.connection_state import PullWork
    from kourou.broker.pop.notices import PopNotices
    from kourou.broker.pop.peeks import PopPeeks
    from kourou.broker.pop.pop_polling import PopPolling
    from kourou.broker.pop.pop_service import PopService
    from kourou.broker.pull.cold_pulls import ColdPullQueues

# Clients decode the header of these answers, too.
_WITH_HEADER: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL})


class _RemotingCaller:
    """A request of a client."""

    __slots__ = ("_processor", "_request")

    def __init__(self, processor: PopProcessor, request: Request) -> None:
        self._processor = processor
        self._request = request

    @property
    def address(self) -> str:
        return self._request.connection.remote_address

    @property
    def owner(self) -> object:
        return self._request.connection

    @property
    def is_gone(self) -> bool:
        return self._request.connection.closed

    @property
    def is_paused(self) -> bool:
        return self._request.connection.is_write_paused

    def check_again(self, ruling: Ruling) -> None:
        self._processor.admission.check_parked(self._request, ruling)

    def run_cold(self, work: PullWork) -> None:
        self._processor.cold_pulls.run(self._request, work)

    def fail(self, error: Exception) -> None:
        answer_failure(self._request, error)

    def _charge(self, messages: int, size_bytes: int) -> None:
        charge = self._processor.charge
        if charge is not None and messages:
            charge(self._request, messages, size_bytes)


class _Popper(_RemotingCaller):
    __slots__ = ()

    def answer(self, result: PopResult) -> None:
        self._charge(result.message_count, result.size_bytes)
        answer_pop(self._request, result)

    def fail(self, error: Exception) -> None:
        if isinstance(error, RequestError) and error.response_code in _WITH_HEADER:
            code = ResponseCode(error.response_code)
            self._request.reply(response_header(nothing(code)), code=code, remark=str(error))
        else:
            super().fail(error)


class _Peeker(_RemotingCaller):
    __slots__ = ()

    def answer(self, records: list[Buffer], message_count: int, rest: int) -> None:
        self._charge(message_count, sum(map(len, records)))
        header = PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
        self._request.reply(header, b"".join(records), code=code, remark=FOUND if records else NO_MESSAGE)


class _Notified(_RemotingCaller):
    __slots__ = ()

    def answer(self, has_message: bool, is_full: bool) -> None:
        self._request.reply(NotificationResponseHeader(has_msg=has_message, polling_full=is_full))


class PopProcessor:
    """Handles the requests of consumers that pop."""

    def __init__(
        self,
        *,
        service: PopService,
        notices: PopNotices,
        peeks: PopPeeks,
        polling: PopPolling,
        admission: Admission,
        cold_pulls: ColdPullQueues,
    ) -> None:
        self._service = service
        self._notices = notices
        self._peeks = peeks
        self._polling = polling
        self.admission = admission
        self.cold_pulls = cold_pulls
        # Called with a request and how many messages and bytes go out for it, for the limits of accounts.
        self.charge: Callable[[Request, int, int], None] | None = None

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
            RequestCode.POP_ROLLBACK: _no_rollback,
            RequestCode.POP_LITE_MESSAGE: _no_lite,
        }

    def pop(self, request: Request) -> None:
        """POP_MESSAGE: take messages for a while; it may wait for them."""
        caller = _Popper(self, request)
        try:
            self._service.pop(request.header(PopMessageRequestHeader), caller)
        except RequestError as error:
            caller.fail(error)

    def peek(self, request: Request) -> None:
        """PEEK_MESSAGE: the messages that a pop would take."""
        self._peeks.peek(request.header(PeekMessageRequestHeader), _Peeker(self, request))

    def notification(self, request: Request) -> None:
        """NOTIFICATION: whether there is something to pop; it may wait until there is."""
        self._notices.notify(request.header(NotificationRequestHeader), _Notified(self, request))

    def polling_info(self, request: Request) -> None:
        """POLLING_INFO: how many pops wait for one queue, or for any."""
        header = request.header(PollingInfoRequestHeader)
        key = OrderKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        self.admission.check_popped(*key, request.connection.remote_address)
        request.reply(PollingInfoResponseHeader(polling_num=self._polling.count(key)))


def _no_rollback(_: Request) -> None:
    raise RequestError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "check points are always kept in files here, where every broker finds them; there is nothing to roll "
        "back",
    )


def _no_lite(_: Request) -> None:
    raise RequestError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "there are no lite topics here; pop from a normal topic"
    )
