"""Every request a name server answers, by its code. All others are answered by the transport."""

from __future__ import annotations

from kourou.namesrv.broker_processor import BrokerProcessor
from kourou.namesrv.config_processor import ConfigProcessor
from kourou.namesrv.kv_config_processor import KvConfigProcessor
from kourou.namesrv.route_processor import RouteProcessor
from kourou.namesrv.state import NamesrvState
from kourou.namesrv.topic_processor import TopicProcessor
from kourou.transport.request import Processor


def namesrv_processors(state: NamesrvState) -> dict[int, Processor]:
    """Request code to the function that handles it."""
    return {
        **RouteProcessor(state).processors(),
        **BrokerProcessor(state).processors(),
        **TopicProcessor(state).processors(),
        **KvConfigProcessor(state).processors(),
        **ConfigProcessor(state).processors(),
    }
