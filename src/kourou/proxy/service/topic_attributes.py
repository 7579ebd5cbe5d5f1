"""The attributes of a topic: `message.type` among them."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.proxy.links.broker_link import Brokers


async def topic_attributes(brokers: Brokers, topic: str) -> Mapping[str, str] | None:
    """The attributes that brokers have stored of a topic; None: they do not say. The errors of
    Brokers.topic_config."""
    try:
        config = await brokers.topic_config(topic)
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # of version 4, which has no attributes
            return None
        raise
    return None if config is None else config.attributes
