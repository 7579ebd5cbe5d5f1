"""RegisterBrokerBody: the topics of a broker for the name server (103), plain or packed.

Plain is JSON. Packed (header `compressed=true`) is a zlib stream of, integers big-endian i32:

    length, DataVersion as JSON
    count of topics, for each: length, "name readQueueNums writeQueueNums perm filterType attributes"
    length, filter server list as JSON
    from sender version 413 on: count, for each: length, TopicQueueMappingInfo as JSON

Brokers of 4.x leave out the sixth word; `order` and `topicSysFlag` are lost by design.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from msgspec import field

from kourou.errors import ProtocolError
from kourou.protocol.bodies.codec import convert_body, decode_body, encode_body
from kourou.protocol.bodies.shape import Body
from kourou.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from kourou.protocol.versions import CURRENT_VERSION, V5_0_0

MAX_INFLATED_BYTES: Final = 67_108_864
"""About a million topics. A frame of 16 MiB may otherwise unfold to 16 GiB of zeros."""

_INT: Final = struct.Struct(">i")
_FILTER_SERVERS: Final = list[str]
_ATTRIBUTES: Final = dict[str, str]
_TOPIC_WORDS: Final = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


class RegisterBrokerBody(Body):
    """Body of REGISTER_BROKER (103)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []

    def encode(self, *, compressed: bool = False, version: int = CURRENT_VERSION) -> bytes:
        """The body as a broker of `version` sends it."""
        v4 = version < V5_0_0
        return zlib.compress(_packed(self, v4), 9) if compressed else encode_body(self, v4=v4)


def decode_register_broker(
    raw: bytes, *, compressed: bool = False, version: int = CURRENT_VERSION
) -> RegisterBrokerBody:
    """Read the body of 103 that a broker of `version` sent; an empty one has no topics."""
    if not raw:
        return RegisterBrokerBody()
    if not compressed:
        return decode_body(raw, RegisterBrokerBody)
    try:
        return _unpacked(_Sections(_inflated(raw)), version)
    except ProtocolError as error:
        raise ProtocolError(f"compressed RegisterBrokerBody: {error}") from None


def _packed(body: RegisterBrokerBody, v4: bool) -> bytes:
    wrapper = body.topic_config_serialize_wrapper
    topics = wrapper.topic_config_table.values()
    sections = [_section(encode_body(wrapper.data_version, v4=v4)), _INT.pack(len(topics))]
    sections += [_section(_topic_line(topic, v4).encode()) for topic in topics]
    sections.append(_section(encode_body(body.filter_server_list)))
    if not v4:
        mappings = wrapper.topic_queue_mapping_info_map.values()
        sections.append(_INT.pack(len(mappings)))
        sections += [_section(encode_body(mapping)) for mapping in mappings]
    return b"".join(sections)


def _section(content: bytes) -> bytes:
    return _INT.pack(len(content)) + content


def _topic_line(topic: TopicConfig, v4: bool) -> str:
    words = f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    line = f"{words} {topic.topic_filter_type}"
    return line if v4 else f"{line} {encode_body(topic.attributes).decode()}"


def _inflated(raw: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(raw, MAX_INFLATED_BYTES + 1)
    except zlib.error as error:
        raise ProtocolError(f"expected a zlib stream ({error})") from None
    if len(content) > MAX_INFLATED_BYTES:
        raise ProtocolError(f"unfolds to more than {MAX_INFLATED_BYTES} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ProtocolError(f"expected one whole zlib stream, got {len(raw)} bytes that do not end as one")
    return content


class _Sections:
    """Reads integers and length-prefixed sections in turn, never past the end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def int(self, what: str) -> int:
        """The next integer: a length or count, so never more than the bytes that are left."""
        start, self._position = self._position, self._position + _INT.size
        if self._position > len(self._content):
            raise ProtocolError(f"at byte {start}: expected {what}, but the content ends")
        (number,) = _INT.unpack_from(self._content, start)
        if not 0 <= number <= len(self._content) - self._position:
            raise ProtocolError(f"at byte {start}: {what} is {number}, more than the bytes that follow")
        return int(number)

    def section(self, what: str) -> bytes:
        end = self.int(f"the length of {what}") + self._position
        content, self._position = self._content[self._position : end], end
        return content

    def at_end(self) -> bool:
        return self._position == len(self._content)


def _unpacked(sections: _Sections, version: int) -> RegisterBrokerBody:
    wrapper = TopicConfigSerializeWrapper()
    wrapper.data_version = decode_body(sections.section("the data version"), DataVersion)
    for _ in range(sections.int("the number of topics")):
        topic = _parsed_topic_line(sections.section("a topic"))
        wrapper.topic_config_table[topic.topic_name] = topic
    filter_servers = _filter_servers(sections.section("the filter server list"))
    # A 5.x broker that presents an older version sends no mappings, so the end may come here.
    if version >= V5_0_0 and not sections.at_end():
        for _ in range(sections.int("the number of queue mappings")):
            mapping = decode_body(sections.section("a queue mapping"), TopicQueueMappingInfo)
            wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
    return RegisterBrokerBody(wrapper, filter_servers)


def _filter_servers(raw: bytes) -> list[str]:
    """The list; a Java broker whose list is null says so here, where no name can be left out."""
    return [] if raw == b"null" else decode_body(raw, _FILTER_SERVERS)


def _parsed_topic_line(raw: bytes) -> TopicConfig:
    words = raw.decode(errors="replace").split(" ", 5)
    if len(words) < 5:
        raise ProtocolError(f"expected a topic as five or six words, got {raw[:80]!r}")
    tree: dict[str, object] = dict(zip(_TOPIC_WORDS, words, strict=False))
    if len(words) > 5:
        tree["attributes"] = decode_body(words[5].encode(), _ATTRIBUTES)
    return convert_body(tree, TopicConfig)
