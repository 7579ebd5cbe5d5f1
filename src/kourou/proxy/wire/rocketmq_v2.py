"""The messages, enums and methods of `apache.rocketmq.v2`, made of descriptor.py; types: rocketmq_v2.pyi.

They are in a descriptor pool of their own: the official Python client registers the same names in the
default pool, and both have to work in one process. For the same reason Timestamp and Duration are not
those of google.protobuf.

Enums are IntEnums; a field of an enum holds a plain int, which may be newer than this file.
METHODS has the methods of MessagingService by the path of their calls.
"""

from __future__ import annotations

import base64
from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError as DecodeError

from kourou.proxy.wire.descriptor import DESCRIPTOR


class Method(NamedTuple):
    """One method of the service, and what its calls are made of."""

    name: str
    request: type[Any]
    response: type[Any]
    is_client_streaming: bool
    is_server_streaming: bool


def _load() -> tuple[dict[str, Any], dict[str, Method]]:
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(base64.b64decode(DESCRIPTOR))
    file = pool.FindFileByName("rocketmq_v2.proto")
    names: dict[str, Any] = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{name}"))
        for name in ("Duration", "Timestamp")
    }
    for name, message in file.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
        for nested in message.enum_types:
            names[name + nested.name] = _enum(name + nested.name, nested)
    for name, enum in file.enum_types_by_name.items():
        names[name] = _enum(name, enum)
    service = file.services_by_name["MessagingService"]
    methods = {
        f"/{service.full_name}/{method.name}": Method(
            method.name,
            names[method.input_type.name],
            names[method.output_type.name],
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    }
    return names, methods


def _enum(name: str, descriptor: Any) -> type[IntEnum]:
    made: type[IntEnum] = IntEnum(  # type: ignore[misc]
        name, {value.name: value.number for value in descriptor.values}, module=__name__
    )
    return made


_NAMES, METHODS = _load()
globals().update(_NAMES)
