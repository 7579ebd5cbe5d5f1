"""Requests of brokers to a client: they come over its links, and go on over its Telemetry stream.

A broker checks an orphaned transaction (39), and tools want a consumer's state (307) or have it consume a
message now (309). What a gRPC client cannot do is answered as not supported. That a group has changed (40)
and that offsets are reset (220) have no meaning to consumers that receive by POP.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from kourou.client.pop.pop_calls import ANY_QUEUE
from kourou.errors import KourouError, RequestError
from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
    PopProcessQueueInfo,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.clients import GetConsumerRunningInfoRequestHeader
from kourou.protocol.headers.transactions import CheckTransactionStateRequestHeader
from kourou.protocol.record import decode_record
from kourou.proxy.clients.client_settings import ClientSettings
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.telemetry_stream import new_nonce
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.received import fill_message
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.heartbeats import known_settings
from kourou.proxy.service.telemetry import current_stream
from kourou.proxy.wire.rocketmq_v2 import (
    ClientType,
    Code,
    PrintThreadStackTraceCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Request
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""How long a client may take for the answer to a command."""
_WITHOUT_MEANING: Final = frozenset(
    {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET}
)
_RESULTS: Final[dict[int, CMResult]] = {
    Code.OK: CMResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    Code.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}


class CheckedTransactions(Protocol):
    """Where EndTransaction finds the half messages that brokers have asked about."""

    def checked(
        self, client: ProxyClient, topic: str, broker_name: str, check: CheckTransactionStateRequestHeader
    ) -> None:
        """A broker has asked a client about a half message."""
        ...


class BrokerRequests:
    """Handles them, for all clients."""

    def __init__(self, brokers: Brokers, transactions: CheckedTransactions, tasks: TaskOwner) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = brokers
        self._transactions = transactions
        self._tasks = tasks

    def handle(self, client: ProxyClient, request: Request) -> None:
        """Handle one; what is raised becomes the response."""
        code = request.code
        if code in _WITHOUT_MEANING:
            if not request.is_oneway:
                request.reply()
        elif code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check_transaction(client, request)
        elif code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            run_request(self._tasks, request, self._running_info(client, request))
        elif code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            run_request(self._tasks, request, self._verify_message(client, request))
        else:
            raise RequestError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"gRPC clients do not support request {code}"
            )

    def _check_transaction(self, client: ProxyClient, request: Request) -> None:
        header = request.header(CheckTransactionStateRequestHeader)
        message = decode_record(request.body)
        broker_name = request.ext_fields.get("bname", "")
        self._transactions.checked(client, message.topic, broker_name, header)
        command = TelemetryCommand(status=make_status(Code.OK))
        recover = command.recover_orphaned_transaction_command
        fill_message(recover.message, message)
        recover.transaction_id = header.transaction_id or message.msg_id
        try:
            current_stream(client).send(command)
        except StatusError as error:
            # The broker asks again, maybe another producer.
            _log.info("half message %s is not checked: %s", message.msg_id, error)

    async def _running_info(self, client: ProxyClient, request: Request) -> None:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        settings = known_settings(client)
        is_passive = settings.client_type == ClientType.PUSH_CONSUMER
        consume_type = ConsumeType.CONSUME_PASSIVELY if is_passive else ConsumeType.CONSUME_ACTIVELY
        agent = settings.sent.user_agent
        info = ConsumerRunningInfo(
            properties={
                "consumerGroup": settings.group,
                "PROP_CONSUME_TYPE": consume_type.value,
                "PROP_CLIENT_VERSION": agent.version,
                "PROP_CONSUMER_START_TIMESTAMP": "0",
                "PROP_CONSUMEORDERLY": str(client.rules is not None and client.rules.is_fifo).lower(),
                "PROP_NAMESERVER_ADDR": "",
                "PROP_THREADPOOL_CORE_SIZE": "-1",
            },
            subscription_set=list(settings.subscriptions.values()),
            mq_pop_table=await self._popped(settings),
        )
        if header.jstack_enable:
            nonce = new_nonce()
            command = TelemetryCommand(
                status=make_status(Code.OK),
                print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce),
            )
            answer = await current_stream(client).ask(nonce, command, ANSWER_S)
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        request.reply(body=encode_body(info))

    async def _popped(self, settings: ClientSettings) -> dict[MessageQueue, PopProcessQueueInfo]:
        """The proxy pops for its clients from every broker of a topic, from all queues at once. What waits
        for an ack, and when a client received last, is not counted for each client: -1 and 0."""
        popped: dict[MessageQueue, PopProcessQueueInfo] = {}
        for topic in settings.subscriptions:
            with suppress(KourouError):  # a topic that was deleted is popped nowhere
                route = await self._brokers.route(topic)
                for queues in route.queue_datas:
                    source = MessageQueue(topic, queues.broker_name, ANY_QUEUE)
                    popped[source] = PopProcessQueueInfo(wait_ack_count=-1)
        return popped

    async def _verify_message(self, client: ProxyClient, request: Request) -> None:
        message = decode_record(request.body)
        nonce = new_nonce()
        command = TelemetryCommand(status=make_status(Code.OK))
        verify: VerifyMessageCommand = command.verify_message_command
        verify.nonce = nonce
        fill_message(verify.message, message)
        began_s = self._loop.time()
        answer = await current_stream(client).ask(nonce, command, ANSWER_S)
        status = answer.status
        result = _RESULTS.get(status.code)
        if result is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the client answers {status.code}: {status.message}"
            )
        request.reply(
            body=encode_body(
                ConsumeMessageDirectlyResult(
                    order=client.rules is not None and client.rules.is_fifo,
                    consume_result=result,
                    remark=status.message or None,
                    spent_time_mills=int((self._loop.time() - began_s) * 1000),
                )
            )
        )
