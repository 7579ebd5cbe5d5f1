"""TopicProcessor: lists of topics, and what administrators do to topics and permissions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kourou.errors import RequestError
from kourou.namesrv.route_views import RouteViews
from kourou.namesrv.state import NamesrvState
from kourou.protocol.bodies import TopicList, TopicRouteData, decode_body, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from kourou.transport.request import Processor, Request

_log = logging.getLogger(__name__)


class TopicProcessor:
    """Requests of administrators, and 217 of brokers that register topics one by one."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._lists(RouteViews.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._lists(RouteViews.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._lists(RouteViews.unit_sub_ununit_topics),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    # -- lists ------------------------------------------------------------------------------

    def get_all_topics(self, request: Request) -> None:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        _reject_unless(self._state.config.enable_all_topic_list)
        request.reply(body=encode_body(self._state.views.all_topics()))

    def get_topics_by_cluster(self, request: Request) -> None:
        """224: the topics of one cluster; of an unknown one, none."""
        _reject_unless(self._state.config.enable_topic_list)
        header = request.header(GetTopicsByClusterRequestHeader)
        request.reply(body=encode_body(self._state.views.topics_of_cluster(header.cluster)))

    def get_system_topics(self, request: Request) -> None:
        """304: names of clusters and brokers."""
        request.reply(body=encode_body(self._state.views.system_topics()))

    def _lists(self, view: Callable[[RouteViews], TopicList]) -> Processor:
        """311, 312, 313: topics by their unit flags."""

        def get_unit_topics(request: Request) -> None:
            _reject_unless(self._state.config.enable_topic_list)
            request.reply(body=encode_body(view(self._state.views)))

        return get_unit_topics

    # -- changes ----------------------------------------------------------------------------

    def register_topic(self, request: Request) -> None:
        """217: one topic of a broker that has registered."""
        header = request.header(RegisterTopicRequestHeader)
        route = decode_body(request.body, TopicRouteData)
        self._state.routes.register_topic(header.topic, route.queue_datas)
        request.reply()

    def delete_topic(self, request: Request) -> None:
        """216: forget a topic, in one cluster or everywhere."""
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._state.routes.delete_topic(header.topic, header.cluster_name)
        _log.info("topic %s deleted by %s", header.topic, request.connection.remote_address)
        request.reply()

    def wipe_write_perm(self, request: Request) -> None:
        """205: remove the write permission of a broker."""
        header = request.header(WipeWritePermOfBrokerRequestHeader)
        count = self._state.routes.wipe_write_perm(header.broker_name)
        _log.info("write permission of %s wiped by %s", header.broker_name, request.connection.remote_address)
        request.reply(WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, request: Request) -> None:
        """ADD_WRITE_PERM_OF_BROKER (327): reverts WIPE_WRITE_PERM_OF_BROKER (205)."""
        header = request.header(AddWritePermOfBrokerRequestHeader)
        count = self._state.routes.add_write_perm(header.broker_name)
        _log.info("write permission of %s added by %s", header.broker_name, request.connection.remote_address)
        request.reply(AddWritePermOfBrokerResponseHeader(add_topic_count=count))


def _reject_unless(enabled: bool) -> None:
    if not enabled:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
