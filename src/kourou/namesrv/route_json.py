"""JsonForm: the ways a route reads on the wire, and a route put together from ready pieces.

    caller              broker ids    fields of 5.x
    below 4.9.4         bare          no              LEGACY_V4
    4.9.4 to 4.9.9      quoted        no              STANDARD_V4
    5.0.0 and later     quoted        yes             STANDARD_V5

Cluster information has bare ids for every caller (LEGACY_V5), as Apache writes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from kourou.protocol.bodies import BrokerData, TopicQueueMappingInfo, encode_body
from kourou.protocol.versions import STANDARD_JSON_VERSION, V5_0_0


class JsonForm(enum.IntEnum):
    """A form of brokers in JSON; bit 0 is standard JSON, bit 1 the fields of 5.x."""

    LEGACY_V4 = 0
    STANDARD_V4 = 1
    LEGACY_V5 = 2
    STANDARD_V5 = 3

    @property
    def is_standard(self) -> bool:
        """True when broker ids are quoted."""
        return bool(self & 1)

    @property
    def is_v4(self) -> bool:
        """True when the fields of 5.x are left out."""
        return not self & 2


def route_form(version: int, accept_standard_json_only: bool) -> JsonForm:
    """The form in which a caller of this version is given routes."""
    is_standard = version >= STANDARD_JSON_VERSION or accept_standard_json_only
    return JsonForm(is_standard + 2 * (version >= V5_0_0))


def cluster_form(version: int) -> JsonForm:
    """The form in which a caller of this version is given cluster information."""
    return JsonForm.LEGACY_V5 if version >= V5_0_0 else JsonForm.LEGACY_V4


def broker_data_json(data: BrokerData, form: JsonForm) -> bytes:
    """A BrokerData in a client's form of JSON."""
    return encode_body(data, v4=form.is_v4, bare_int_keys=not form.is_standard)


def route_json(
    broker_datas: Iterable[bytes],
    queue_datas: Iterable[bytes],
    *,
    filter_servers: Mapping[str, list[str]],
    order_topic_conf: str | None,
    mappings: Mapping[str, TopicQueueMappingInfo],
    form: JsonForm,
) -> bytes:
    """A TopicRouteData from the JSON of its parts, in fastjson's order of fields."""
    pieces = [b'{"brokerDatas":[', b",".join(broker_datas), b'],"filterServerTable":']
    pieces.append(encode_body(dict(filter_servers)) if filter_servers else b"{}")
    if order_topic_conf is not None:
        pieces += (b',"orderTopicConf":', encode_body(order_topic_conf))
    pieces += (b',"queueDatas":[', b",".join(queue_datas), b"]")
    if mappings and not form.is_v4:
        by_broker = encode_body(dict(mappings), bare_int_keys=not form.is_standard)
        pieces += (b',"topicQueueMappingByBroker":', by_broker)
    pieces.append(b"}")
    return b"".join(pieces)


def cluster_info_json(brokers: Mapping[str, bytes], clusters: Mapping[str, Iterable[str]]) -> bytes:
    """A ClusterInfo from the JSON of its brokers."""
    # Encoded by msgspec: each 5.x broker requests it every few seconds, and it contains all brokers.
    return msgspec.json.encode(
        {
            "brokerAddrTable": {name: msgspec.Raw(data) for name, data in brokers.items()},
            "clusterAddrTable": {cluster: list(names) for cluster, names in clusters.items()},
        }
    )
