"""ClientApi: the requests of a client to name servers and brokers, as typed calls.

Each call signs, sends, waits and turns a response other than success into ResponseError. Handling the failure
is up to the caller. Not here: sends (sends.py) and pulls (pulls.py), the two hot paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from kourou.client.core.login_backoff import LoginBackoff
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.refusals import RefusalLog, response_error
from kourou.client.core.settings import ClientSettings
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import CallTimeoutError, KourouError, NoNameServerError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    CheckClientRequestBody,
    ClusterInfo,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionData,
    TopicList,
    TopicRouteData,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.clients import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from kourou.protocol.headers.namesrv import GetRouteInfoRequestHeader
from kourou.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from kourou.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.transport.client import RemotingClient


class FirstOffsets:
    """Serialises the first offset of a group in a topic at each broker, for one client.

    Apache's broker creates a table for it: two concurrent first offsets create two tables, and the offset in
    one of them is lost. Later offsets may be sent concurrently."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, address: str, group: str, topic: str) -> AsyncIterator[None]:
        """Send an offset inside this block. Until one has succeeded, blocks run one at a time."""
        place = address, group, topic
        if place in self._known:
            yield
            return
        async with self._turns.setdefault(place, asyncio.Lock()):
            yield
        self._known.add(place)
        self._turns.pop(place, None)


OFFSET_TIMEOUT_MS: Final = 5_000
LOCK_TIMEOUT_MS: Final = 1_000
SEND_BACK_TIMEOUT_MS: Final = 5_000
SEARCH_TIMEOUT_MS: Final = 6_000
# Of a wrong login, in RocketMQ 4 and 5.
_REFUSAL_CODES: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION})


class ClientApi:
    """Calls over one client's connections."""

    def __init__(
        self,
        remoting: RemotingClient,
        namesrvs: NamesrvList,
        settings: ClientSettings,
        *,
        max_timeout_ms: int | None = None,
    ) -> None:
        self._max_timeout_ms = max_timeout_ms
        self.remoting = remoting
        self._namesrvs = namesrvs
        self._settings = settings
        self._first_offsets = FirstOffsets()
        self.refusals = RefusalLog()
        self.logins = LoginBackoff()

    # -- calls -----------------------------------------------------------------------------------

    def command(self, code: int, header: msgspec.Struct | None = None, body: bytes = b"") -> RemotingCommand:
        """A request, signed if there are credentials."""
        command = RemotingCommand.request(code, header, body)
        if self._settings.credentials is not None:
            assert command.ext_fields is not None
            self._settings.credentials.sign(command.ext_fields, body)
        return command

    def response_error(self, answer: RemotingCommand, address: str) -> ResponseError:
        """The error for a response other than success."""
        return response_error(answer.code, answer.remark or "", address, self._settings.credentials)

    async def exchange(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and return the response, whatever its code. AccessDeniedError: the server has
        rejected the login before, and this request is not sent (LoginBackoff)."""
        self.logins.check(address, command.code)
        answer = await self.remoting.call(address, command, timeout_ms)
        error = self.response_error(answer, address) if answer.code in _REFUSAL_CODES else None
        self.logins.answered(address, command.code, error)
        return answer

    async def call(
        self,
        address: str,
        code: int,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Send a request and wait; ResponseError for any response but success."""
        command = self.command(code, header, body)
        timeout_ms = timeout_ms or self._settings.request_timeout_ms
        if self._max_timeout_ms is not None:
            timeout_ms = min(timeout_ms, self._max_timeout_ms)
        answer = await self.exchange(address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            error = self.response_error(answer, address)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and address in self._namesrvs.addresses:
                raise await self._not_supported(error)
            raise error
        return answer

    async def _probe(
        self, address: str, code: int, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The same for periodic requests. A connection that delivers nothing within the timeout is closed, so
        that other calls that wait on it fail over to a new one."""
        began = asyncio.get_running_loop().time()
        try:
            return await self.call(address, code, header, body)
        except CallTimeoutError as error:
            self.remoting.close_silent(address, began, f"nothing was heard within {error.timeout_ms} ms")
            raise

    async def call_oneway(
        self, address: str, code: int, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> None:
        """Send a request that has no response."""
        await self.remoting.send_oneway(address, self.command(code, header, body))

    async def call_namesrv(
        self, code: int, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Call the current name server, then the others; NoNameServerError when none responds."""
        failures: list[str] = []
        for _ in range(max(1, len(self._namesrvs.addresses))):
            address = self._namesrvs.current
            try:
                return await self._probe(address, code, header, body)
            except RemotingError as error:
                failures.append(str(error))
                self._namesrvs.move_on(address)
        raise NoNameServerError(f"no name server answers: {'; '.join(failures)}")

    @property
    def namesrv(self) -> str:
        """The address of the name server in use."""
        return self._namesrvs.current

    async def _not_supported(self, error: ResponseError) -> KourouError:
        """The error for a request code that a name server does not support: the response itself, unless the
        address is a broker's, given by mistake."""
        try:
            command = self.command(RequestCode.GET_BROKER_CONFIG)
            answer = await self.remoting.call(error.address, command, self._settings.request_timeout_ms)
        except RemotingError:
            return error
        if answer.code != ResponseCode.SUCCESS:
            return error
        keys = properties_dict(parse_properties(answer.body.decode("utf-8", "replace")))
        return NoNameServerError(f"{error.address} {broker_instead(keys)}")

    # -- routes ----------------------------------------------------------------------------------

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None when the name server does not know it."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self.call_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except ResponseError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoNameServerError(
                    f"{error.address} does not answer as a name server does ({error}); is that a broker?"
                ) from None
            raise
        return decode_body(answer.body, TopicRouteData)

    async def topic_names(self) -> list[str]:
        """All topics that the name server knows, including system and retry topics, sorted."""
        answer = await self.call_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(decode_body(answer.body, TopicList).topic_list)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters that the name server knows."""
        answer = await self.call_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(answer.body, ClusterInfo)

    # -- registration ----------------------------------------------------------------------------

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Register the client's groups with a broker; returns its version."""
        return (await self._probe(address, RequestCode.HEART_BEAT, body=encode_body(data))).version

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Unregister one group."""
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_subscription(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData
    ) -> None:
        """Check that a broker accepts an expression; ResponseError if not."""
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """The members of a group that one broker knows."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return decode_body(answer.body, GetConsumerListByGroupResponseBody).consumer_id_list

    # -- offsets ---------------------------------------------------------------------------------

    async def consumer_offset(
        self, address: str, group: str, queue: MessageQueue, *, only_stored: bool = False
    ) -> int | None:
        """A group's offset in a queue; None when the broker has none. For a group without an offset a broker
        may return where it has to begin, unless `only_stored`, which Apache 4.9 ignores."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if only_stored else None,
        )
        try:
            answer = await self.call(
                address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=OFFSET_TIMEOUT_MS
            )
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return answer.header(QueryConsumerOffsetResponseHeader).consumer_offset

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, queue_offset: int
    ) -> None:
        """Store a group's offset of a queue; on return the broker has it."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=queue_offset
        )
        async with self._first_offsets.turn(address, group, queue.topic):
            await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=OFFSET_TIMEOUT_MS)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.call(address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=SEARCH_TIMEOUT_MS)
        return answer.header(GetMaxOffsetResponseHeader).queue_offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset of the first message that still exists."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.call(address, RequestCode.GET_MIN_OFFSET, header, timeout_ms=SEARCH_TIMEOUT_MS)
        return answer.header(GetMinOffsetResponseHeader).queue_offset

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        header = SearchOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        answer = await self.call(
            address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_ms=SEARCH_TIMEOUT_MS
        )
        return answer.header(SearchOffsetResponseHeader).queue_offset

    # -- orderly consumption, retry, transactions ------------------------------------------------

    async def lock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock queues of one broker for this client; returns the queues that it holds now."""
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues))
        answer = await self.call(
            address, RequestCode.LOCK_BATCH_MQ, body=encode_body(body), timeout_ms=LOCK_TIMEOUT_MS
        )
        return decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, oneway: bool = True
    ) -> None:
        body = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues))
        if oneway:
            await self.call_oneway(address, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body))
        else:
            await self.call(
                address, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body), timeout_ms=LOCK_TIMEOUT_MS
            )

    async def send_back(self, address: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        """Have a message redelivered later."""
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def end_transaction(self, address: str, header: EndTransactionRequestHeader) -> None:
        """End a transaction; without a response, as in Java."""
        await self.call_oneway(address, RequestCode.END_TRANSACTION, header)

    async def recall(self, address: str, header: RecallMessageRequestHeader, timeout_ms: int) -> str:
        """Recall a timer message; returns its unique id."""
        answer = await self.call(address, RequestCode.RECALL_MESSAGE, header, timeout_ms=timeout_ms)
        return answer.header(RecallMessageResponseHeader).msg_id


def broker_instead(keys: Mapping[str, str]) -> str:
    """The end of the error for a broker's address given as a name server's; `keys` is its configuration."""
    name, namesrv = keys.get("brokerName", "?"), keys.get("namesrvAddr")
    where = f"its name server is {namesrv}" if namesrv else "it has no name server; a usual port is 9876"
    return f"is broker {name}, not a name server; {where}"
