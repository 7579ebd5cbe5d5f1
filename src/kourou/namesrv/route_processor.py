"""RouteProcessor: where topics and brokers are.

Not here: `clusterTest`. Apache's name server of a test environment queries the one of `productEnvName` for
unknown routes, through an internal address service. Ours only serves its own registrations, and warns when
the key is set.
"""

from __future__ import annotations

from kourou.errors import RequestError
from kourou.namesrv.kv_config import ORDER_TOPIC_CONFIG
from kourou.namesrv.route_json import cluster_form, route_form
from kourou.namesrv.state import NamesrvState
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetRouteInfoRequestHeader
from kourou.transport.request import Processor, Request

# Apache's words; tools show them and people search for them.
_NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class RouteProcessor:
    """Requests that every client repeats every 30 s."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route_info,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
        }

    def get_route_info(self, request: Request) -> None:
        """105: queues and brokers of a topic."""
        header = request.header(GetRouteInfoRequestHeader)
        self._reject_until_ready()
        body = self._state.views.route_body(
            header.topic,
            route_form(request.version, bool(header.accept_standard_json_only)),
            order_topic_conf=self._order_topic_conf(header.topic),
            zone_name=(header.zone_name or None) if header.zone_mode else None,
        )
        if body is None:
            request.error(ResponseCode.TOPIC_NOT_EXIST, _NO_ROUTE.format(header.topic))
        else:
            request.reply(body=body)

    def _reject_until_ready(self) -> None:
        if self._state.holds_routes_back:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "name server not ready")

    def _order_topic_conf(self, topic: str) -> str | None:
        if not self._state.config.order_message_enable:
            return None
        return self._state.kv_config.get(ORDER_TOPIC_CONFIG, topic)

    def get_cluster_info(self, request: Request) -> None:
        """106: all clusters and brokers."""
        request.reply(body=self._state.views.cluster_info_body(cluster_form(request.version)))
