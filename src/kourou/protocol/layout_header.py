"""The C header of the compiled kernel: positions, sizes and bounds of layout.py as constants.

`python -m kourou.protocol.layout_header FILE` writes it (`make layout`). It is committed beside the kernel's
source, so that building needs no extra step; a unit test compares it with the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kourou.protocol import layout
from kourou.protocol.codes import PullSysFlag, RequestCode, SerializeType
from kourou.protocol.layout import Kind, Layout

_LAYOUTS = (
    layout.RECORD,
    layout.CQ_UNIT,
    layout.INDEX_KEY,
    layout.PULL_NOTE,
    layout.BATCH_ENTRY,
    layout.FRAME,
    layout.BINARY_COMMAND,
)
_KINDS = (
    "HOST_V4",
    "TOPIC_LENGTH_V1",
    "TOPIC_LENGTH_V2",
    "PROPERTIES_LENGTH",
    "BINARY_NAME_LENGTH",
    "BINARY_VALUE_LENGTH",
)
_NUMBERS = (
    "BORN_V6",
    "STORE_V6",
    "HOSTS_V6",
    "HOST_V6_EXTRA_BYTES",
    "TRANSACTION_MASK",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "MESSAGE_MAGIC_CODE",
    "MESSAGE_MAGIC_CODE_V2",
    "CRC_MASK",
    "MIN_RECORD_BYTES",
    "MAX_RECORD_BYTES",
    "MAX_PROPERTIES_BYTES",
    "MAX_TOPIC_BYTES_V1",
    "MAX_TOPIC_FOLDER_BYTES",
    "MIN_BATCH_ENTRY_BYTES",
    "MAX_HEADER_BYTES",
    "WINDOW_SEQUENCES",
    "WINDOW_MARK_RANGE",
    "WINDOW_MARKS",
    "WINDOW_NEXT",
    "WINDOW_USED_MS",
    "WINDOW_RUN",
    "WINDOW_LAST",
    "WINDOW_SEEN",
    "WINDOW_FIRST_MARK",
    "WINDOW_WORDS",
    "WINDOW_BLOCK_SLOTS",
)


def c_header() -> str:
    return "\n".join(
        (
            "/* Generated from kourou/protocol/layout.py by `make layout`. Edit the table, not this file. */",
            "",
            "#ifndef KOUROU_LAYOUT_H",
            "#define KOUROU_LAYOUT_H",
            *_lines(),
            "",
            "#endif",
            "",
        )
    )


def _lines() -> Iterator[str]:
    for each in _LAYOUTS:
        yield ""
        yield from _positions(each)
    yield ""
    for name in _KINDS:
        kind: Kind = getattr(layout, name)
        yield _define(f"{name}_BYTES", kind.size)
    yield ""
    for name in _NUMBERS:
        yield _define(name, getattr(layout, name))
    for name in ("NAME_VALUE_SEPARATOR", "PROPERTY_SEPARATOR"):
        yield _define(name, ord(getattr(layout, name)))
    yield ""
    for code in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        yield _define(code.name, code.value)
    for serialize_type in SerializeType:
        yield _define(f"SERIALIZE_{serialize_type.name}", serialize_type.value)
    yield _define("PULL_COMMITS_OFFSET", PullSysFlag.COMMIT_OFFSET.value)
    yield ""
    yield "/* The fields of SEND_MESSAGE_V2: their letters, and the values that the kernel accepts. */"
    yield from _send_fields()


def _positions(each: Layout) -> Iterator[str]:
    for name, kind in each.fields:
        yield _define(f"{each.name}_{name.upper()}_AT", each.at(name))
        yield _define(f"{each.name}_{name.upper()}_BYTES", kind.size)
    yield _define(f"{each.name}_BYTES", each.size)


def _send_fields() -> Iterator[str]:
    needed = 0
    for index, field in enumerate(layout.SEND_FIELDS):
        name = f"SEND_{field.name.upper()}"
        yield f"#define {name} '{field.letter}'"
        if field.high:
            yield _define(f"{name}_MIN", field.low)
            yield _define(f"{name}_MAX", field.high)
        needed |= field.is_needed << index
    yield f"#define SEND_FIRST '{layout.SEND_FIELDS[0].letter}'"
    yield f"#define SEND_LAST '{layout.SEND_FIELDS[-1].letter}'"
    yield f"#define SEND_NEEDED {needed:#x} /* one bit per letter, the lowest for the first */"


def _define(name: str, number: int) -> str:
    return f"#define {name} {_c_number(number)}"


def _c_number(number: int) -> str:
    if number < -(1 << 31):
        return f"(-{-number - 1}LL - 1)"
    if number < 0:
        return f"(-{-number - 1} - 1)"
    if number >= 1 << 32:
        return f"{number}LL"
    return f"{number:#x}u" if number >= 1 << 31 else str(number)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(c_header(), "utf-8")
