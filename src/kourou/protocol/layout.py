"""Byte layouts that more than one module reads, and their bounds: each is described here, and only here.

A layout is a row of big-endian fields without gaps. From it come the `struct.Struct` of one record, the
description of a numpy dtype for many, and the header `layout.h` of the compiled kernel (layout_header.py):

    RECORD            head of a message in the CommitLog, and so in every pull response
    CQ_UNIT           entry of a ConsumeQueue
    INDEX_KEY         hashed key on its way to an IndexFile
    PULL_NOTE         answered pull that is not counted yet, in memory
    BATCH_ENTRY       head of a message in the body of a batch
    FRAME             prefix of a frame
    BINARY_COMMAND    head of a command in the binary serialization, without a remark
    SEND_FIELDS       header fields of SEND_MESSAGE_V2, by their letters
    WINDOW_*          words of a window of sequences, in memory
    ORPHANED_TAIL     head of a file with records that were cut off a CommitLog

What follows the head of a record: body, topic length (one byte; V2: two), topic, properties length (two
bytes), properties. Numpy is not imported here: clients do without it.
Not here: what is done with the bytes (record.py, record_spans.py, batch.py, frame.py).
"""

from __future__ import annotations

from struct import Struct, calcsize
from typing import Final, Literal, NamedTuple, TypeAlias

from kourou.protocol.codes import MessageSysFlag

Buffer: TypeAlias = bytes | bytearray | memoryview

# -- kinds of fields ---------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How a field is stored: its code in a `struct` format and its numpy type."""

    code: str
    dtype: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return calcsize(f">{self.code}")

    @property
    def low(self) -> int:
        """The lowest number that fits."""
        return -(1 << 8 * self.size - 1) if self.is_signed else 0

    @property
    def high(self) -> int:
        """The highest number that fits."""
        return (1 << 8 * self.size - self.is_signed) - 1

    @property
    def is_signed(self) -> bool:
        return self.code.islower()


U1: Final = Kind("B", ">u1")
I2: Final = Kind("h", ">i2")
U2: Final = Kind("H", ">u2")
I4: Final = Kind("i", ">i4")
U4: Final = Kind("I", ">u4")
I8: Final = Kind("q", ">i8")
# An address and a port of 4 bytes. Arrays hold an IPv4 host as one number.
HOST_V4: Final = Kind("8s", ">u8")
HOST_V6: Final = Kind("20s", "V20")


class Field(NamedTuple):
    """One field of a layout."""

    name: str
    kind: Kind


class Layout:
    """Fields that follow each other without gaps."""

    __slots__ = ("fields", "name", "offsets", "size")

    def __init__(self, name: str, *fields: tuple[str, Kind]) -> None:
        self.name = name
        self.fields = tuple(Field(*field) for field in fields)
        self.offsets: dict[str, int] = {}
        at = 0
        for field in self.fields:
            self.offsets[field.name] = at
            at += field.kind.size
        self.size = at

    def at(self, name: str) -> int:
        """The position of a field."""
        return self.offsets[name]

    def end(self, name: str) -> int:
        """The position behind a field."""
        return self.offsets[name] + self.kind(name).size

    def kind(self, name: str) -> Kind:
        """How a field is stored."""
        return next(field.kind for field in self.fields if field.name == name)

    @property
    def format(self) -> str:
        """All fields as a `struct` format."""
        return ">" + "".join(field.kind.code for field in self.fields)

    def struct(self) -> Struct:
        """Packs and unpacks all fields."""
        return Struct(self.format)

    def part(self, *names: str, is_padded: bool = False) -> Struct:
        """Unpacks some fields from the beginning of the layout, in its order; what lies between is skipped.
        `is_padded` adds what follows the last of them, so that one layout can follow another."""
        format, at = ">", 0
        for name in names:
            gap = self.at(name) - at
            format += f"{gap}x{self.kind(name).code}" if gap else self.kind(name).code
            at = self.end(name)
        return Struct(f"{format}{self.size - at}x" if is_padded else format)

    def dtype(self) -> list[tuple[str, str]]:
        """All fields as numpy names them: `numpy.dtype(layout.dtype())`."""
        return [(field.name, field.kind.dtype) for field in self.fields]


# -- records -----------------------------------------------------------------------------------------

# Plain numbers: operations on IntFlag members take a microsecond each.
BORN_V6: Final = MessageSysFlag.BORNHOST_V6.value
STORE_V6: Final = MessageSysFlag.STOREHOSTADDRESS_V6.value
HOSTS_V6: Final = BORN_V6 | STORE_V6
TRANSACTION_MASK: Final = MessageSysFlag.TRANSACTION_MASK.value
TRANSACTION_PREPARED: Final = MessageSysFlag.TRANSACTION_PREPARED_TYPE.value
TRANSACTION_ROLLBACK: Final = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value


def _record_head(sys_flag: int) -> Layout:
    return Layout(
        "RECORD",
        ("total_size", I4),
        ("magic", U4),
        ("body_crc", I4),
        ("queue_id", I4),
        ("flag", I4),
        ("queue_offset", I8),
        ("phy_offset", I8),
        ("sys_flag", I4),
        ("born_timestamp", I8),
        ("born_host", HOST_V6 if sys_flag & BORN_V6 else HOST_V4),
        ("store_timestamp", I8),
        ("store_host", HOST_V6 if sys_flag & STORE_V6 else HOST_V4),
        ("reconsume_times", I4),
        ("prepared_transaction_offset", I8),
        ("body_length", I4),
    )


RECORD_HEADS: Final = {flags: _record_head(flags) for flags in (0, BORN_V6, STORE_V6, HOSTS_V6)}
"""By the bits of `sys_flag` that say which hosts are IPv6."""
RECORD: Final = RECORD_HEADS[0]
"""With IPv4 hosts. Up to `born_host` the others are the same."""
TOPIC_LENGTH_V1: Final = U1
TOPIC_LENGTH_V2: Final = I2
PROPERTIES_LENGTH: Final = I2
BLANK: Final = Layout("BLANK", ("total_size", I4), ("magic", U4))
"""Ends a CommitLog file: how many bytes are left."""

MESSAGE_MAGIC_CODE: Final = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2: Final = 0xDAA320AB
"""For topics over 127 bytes; only RocketMQ 5 reads it."""
MESSAGE_MAGIC_CODES: Final = (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)
BLANK_MAGIC_CODE: Final = 0xCBD43194
CRC_MASK: Final = 0x7FFFFFFF
"""A stored CRC-32 has no top bit."""

HOST_V4_BYTES: Final = HOST_V4.size
HOST_V6_BYTES: Final = HOST_V6.size
HOST_V6_EXTRA_BYTES: Final = HOST_V6_BYTES - HOST_V4_BYTES
MIN_RECORD_BYTES: Final = RECORD.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
"""A V1 record with IPv4 hosts and without body, topic and properties."""
MAX_RECORD_BYTES: Final = RECORD.kind("total_size").high
MAX_PROPERTIES_BYTES: Final = PROPERTIES_LENGTH.high
MAX_TOPIC_BYTES_V1: Final = 127
"""RocketMQ 4 takes the byte for a signed number."""
MAX_TOPIC_BYTES_V2: Final = TOPIC_LENGTH_V2.high
MAX_TOPIC_FOLDER_BYTES: Final = 255
"""A topic is the name of a folder, too."""

NAME_VALUE_SEPARATOR: Final = "\x01"
"""Between the name and the value of a property."""
PROPERTY_SEPARATOR: Final = "\x02"
"""Between properties."""

# -- other layouts -----------------------------------------------------------------------------------

CQ_UNIT: Final = Layout("CQ_UNIT", ("phy_offset", I8), ("size", I4), ("tags_code", I8))
BLANK_UNIT_SIZE: Final = CQ_UNIT.kind("size").high
"""In place of a size: a unit whose message this queue never had."""

INDEX_KEY: Final = Layout("INDEX_KEY", ("key_hash", I4), ("phy_offset", I8), ("store_timestamp", I8))

PULL_NOTE: Final = Layout(
    "PULL_NOTE",
    ("queue_id", I4),
    ("messages", I4),
    ("size_bytes", I4),
    ("next_queue_offset", I8),
    ("store_timestamp", I8),
    ("answered_ms", I8),
)
"""`store_timestamp` is that of the first message; `answered_ms` is a time of the same clock."""

BATCH_ENTRY: Final = Layout(
    "BATCH_ENTRY", ("size", I4), ("magic", I4), ("body_crc", I4), ("flag", I4), ("body_length", I4)
)
MIN_BATCH_ENTRY_BYTES: Final = BATCH_ENTRY.size + PROPERTIES_LENGTH.size

FRAME: Final = Layout("FRAME", ("length", U4), ("mark", U4))
"""`length` counts what follows it; `mark` has the serialization in its top byte, then the header's length."""
MAX_HEADER_BYTES: Final = 0xFFFFFF

BINARY_COMMAND: Final = Layout(
    "BINARY_COMMAND",
    ("code", I2),
    ("language", U1),
    ("version", I2),
    ("opaque", I4),
    ("flag", I4),
    ("remark_length", I4),
    ("fields_length", I4),
)
BINARY_NAME_LENGTH: Final = I2
BINARY_VALUE_LENGTH: Final = I4

ORPHANED_TAIL: Final = Layout(
    "ORPHANED_TAIL",
    ("magic", U4),
    ("head_crc", U4),
    ("records_crc", U4),
    ("set_length", U2),
    ("epoch", I8),
    ("start_phy_offset", I8),
    ("end_phy_offset", I8),
    ("file_bytes", I8),
    ("saved_ms", I8),
)
"""Then the name of the broker set, `set_length` bytes of UTF-8, and the bytes of the log. `records_crc` is of
those, `head_crc` of all from there up to them; `file_bytes` is the length of the log's files."""
ORPHANED_TAIL_MAGIC: Final = 0x4B544131  # KTA1

# -- fields of a send --------------------------------------------------------------------------------


class SendField(NamedTuple):
    """A header field of SEND_MESSAGE_V2, under its letter.

    The kernel accepts a number from `low` to `high`, and a topic of so many bytes; others take the slow path.
    `is_needed`: without the field a send takes the slow path.
    """

    letter: str
    name: str
    kind: Literal["text", "number", "bool"]
    low: int = 0
    high: int = 0
    is_needed: bool = False


def _number(
    letter: str, name: str, kind: Kind, *, low: int | None = None, is_needed: bool = False
) -> SendField:
    return SendField(letter, name, "number", kind.low if low is None else low, kind.high, is_needed)


SEND_FIELDS: Final = (
    SendField("a", "producer_group", "text", is_needed=True),
    SendField("b", "topic", "text", 1, MAX_TOPIC_FOLDER_BYTES, is_needed=True),
    SendField("c", "default_topic", "text", is_needed=True),
    _number("d", "default_topic_queue_nums", I4, is_needed=True),
    # Below 0 the broker chooses a queue.
    _number("e", "queue_id", I4, low=0, is_needed=True),
    _number("f", "sys_flag", I4, low=0, is_needed=True),
    _number("g", "born_timestamp", I8, is_needed=True),
    _number("h", "flag", I4, is_needed=True),
    SendField("i", "properties", "text", is_needed=True),
    _number("j", "reconsume_times", I4),
    SendField("k", "unit_mode", "bool"),
    _number("l", "max_reconsume_times", I4),
    SendField("m", "batch", "bool"),
    SendField("n", "broker_name", "text"),
)

# -- windows of sequences ----------------------------------------------------------------------------

# In memory, words of 64 bits: what each is for is said in store/producers/sequence_windows.py.
WINDOW_SEQUENCES: Final = 1_024
WINDOW_MARK_RANGE: Final = 512
WINDOW_MARKS: Final = WINDOW_SEQUENCES // WINDOW_MARK_RANGE + 1
WINDOW_NEXT: Final = 0
WINDOW_USED_MS: Final = 1
WINDOW_RUN: Final = 2
WINDOW_LAST: Final = 3
WINDOW_SEEN: Final = 4
WINDOW_FIRST_MARK: Final = WINDOW_SEEN + WINDOW_SEQUENCES // 64
WINDOW_WORDS: Final = WINDOW_FIRST_MARK + 2 * WINDOW_MARKS
WINDOW_BLOCK_SLOTS: Final = 256
