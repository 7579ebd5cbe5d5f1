"""Queues that the broker assigns to clients (400), and how groups read topics (401, 402).

Each broker of a topic answers for all of its queues, on all brokers: clients send their heartbeats to all of
them, and the name servers know the queues.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.part import HandlersPart
from kourou.broker.pop.assignments import assigned_queues
from kourou.errors import KourouError, RequestError, ResponseError
from kourou.protocol.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    decode_body,
    encode_body,
)
from kourou.protocol.bodies.heartbeat import MessageModel
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.names import is_retry_topic
from kourou.protocol.queue_shares import SHARES
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.pop.request_modes import RequestModes
    from kourou.broker.registration.topic_routes import TopicRoutes
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.transport.client import RemotingClient
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000


class AssignmentProcessor:
    """Assigns queues."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        modes: RequestModes,
        routes: TopicRoutes,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        requests: TaskOwner,
    ) -> None:
        self._config = config
        self._modes = modes
        self._routes = routes
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._requests = requests

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_request_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_request_modes,
        }

    # -- 400 -------------------------------------------------------------------------------------

    def query_assignment(self, request: Request) -> None:
        """400: the queues that a client is to read. An answer without a list changes nothing there."""
        asked = decode_body(request.body, QueryAssignmentRequestBody)
        if asked.message_model is None:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                "the request has no messageModel; send CLUSTERING or BROADCASTING",
            )
        queues = self._routes.known_queues(asked.topic)
        if queues is None:
            run_request(self._requests, request, self._answer_later(request, asked))
        else:
            self._answer(request, asked, queues)

    async def _answer_later(self, request: Request, asked: QueryAssignmentRequestBody) -> None:
        self._answer(request, asked, await self._routes.fetch_queues(asked.topic))

    def _answer(
        self, request: Request, asked: QueryAssignmentRequestBody, queues: Sequence[MessageQueue] | None
    ) -> None:
        mode = self._modes.get(asked.topic, asked.consumer_group)
        assigned = None if queues is None else self._assigned(asked, mode, queues)
        if assigned is None:
            _log.debug("no assignment of topic %s to %s", asked.topic, asked.client_id)
        assignments = (
            None if assigned is None else [MessageQueueAssignment(queue, mode.mode) for queue in assigned]
        )
        request.reply(body=encode_body(QueryAssignmentResponseBody(assignments)))

    def _assigned(
        self,
        asked: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: Sequence[MessageQueue],
    ) -> Sequence[MessageQueue] | None:
        is_shared = self._config.current.server_load_balancer_enable
        if asked.message_model is MessageModel.BROADCASTING or not is_shared:
            return queues
        group = self._consumers.get(asked.consumer_group)
        if group is None:
            return None
        if asked.strategy_name not in SHARES:
            _log.info(
                "group %s: strategy %r of client %s is not known, only %s are",
                asked.consumer_group,
                asked.strategy_name,
                asked.client_id,
                ", ".join(SHARES),
            )
        return assigned_queues(
            mode,
            strategy=asked.strategy_name,
            client_id=asked.client_id,
            queues=queues,
            client_ids=sorted(group.client_ids()),
        )

    # -- 401, 402 --------------------------------------------------------------------------------

    def set_request_mode(self, request: Request) -> None:
        """401: set how a group reads a topic."""
        mode = decode_body(request.body, SetMessageRequestModeRequestBody)
        if is_retry_topic(mode.topic):
            raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._groups.find(mode.consumer_group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self._modes.set(mode)
        request.reply()

    def get_all_request_modes(self, request: Request) -> None:
        """402: all modes."""
        request.reply(body=encode_body(MessageRequestModeSerializeWrapper(self._modes.table)))


class AssignmentPart(HandlersPart):
    """The part that assigns queues, and keeps the routes fresh which that takes."""

    def __init__(self, processor: AssignmentProcessor, routes: TopicRoutes) -> None:
        super().__init__(processor)
        self.routes = routes

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(self.routes.keep_fresh(), "topic-routes")


class RequestModeFollower:
    """Copies the modes of a slave's master."""

    def __init__(self, modes: RequestModes, client: RemotingClient) -> None:
        self._modes = modes
        self._client = client
        self._problem = ""

    async def follow(self, master_address: str) -> None:
        """Copy them; a master of RocketMQ 4 has none. Problems are logged once."""
        command = RemotingCommand.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        problem = ""
        try:
            answer = await self._client.call(master_address, command, _TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                self._modes.follow(decode_body(answer.body or b"{}", MessageRequestModeSerializeWrapper))
            elif answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ResponseError(answer.code, answer.remark or "", master_address)
        except KourouError as error:
            problem = str(error)
        if problem and problem != self._problem:
            _log.warning("how groups read topics is not copied from the master, retrying: %s", problem)
        self._problem = problem
