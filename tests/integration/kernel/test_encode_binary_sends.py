"""encode_sends of requests with binary headers: the same, byte for byte, as without the kernel."""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.codes import LanguageCode, SerializeType
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.store.log.put_status import PutStatus
from kourou.testing.faulty_files import FaultyFiles
from tests.golden.frames import VERSIONS
from tests.integration.kernel.kernel_kit import install
from tests.integration.kernel.twins import (
    ID,
    ORDINARY,
    Twins,
    binary_send,
    frame,
    recorded_requests,
    send,
    started,
)

BINARY = int(SerializeType.ROCKETMQ)
HEAD = struct.Struct(">hBhiii")


def binary(header: bytes, body: bytes = b"hello") -> bytes:
    return frame(header, body, BINARY)


def entry(name: bytes, value: bytes) -> bytes:
    return struct.pack(">H", len(name)) + name + struct.pack(">I", len(value)) + value


ENTRIES = b"".join(entry(name.encode(), value.encode()) for name, value in ORDINARY.items())


def header_of(entries: bytes, *, remark: bytes = b"", more: int = 0) -> bytes:
    """A header around `entries`, of which it says that they have `more` bytes than they have."""
    fixed = HEAD.pack(310, 0, 501, 7, 0, len(remark))
    return fixed + remark + struct.pack(">i", len(entries) + more) + entries


def changed(old: bytes, new: bytes) -> bytes:
    """An ordinary header with bytes in it replaced, as many as there were."""
    header = binary_send()
    assert len(old) == len(new) and header.count(old) == 1
    return header.replace(old, new)


def commands(answers: bytes) -> list[RemotingCommand]:
    return [decode_command(found) for found in FrameDecoder().feed(answers)]


# -- what is taken ------------------------------------------------------------------------------------


def test_ordinary_sends_are_taken(twins: Twins) -> None:
    before = twins.taken
    opaques = [0, 1, -1, 255, 256, 2**31 - 1, -(2**31), *range(7, 40)]
    headers = [binary_send({"e": str(n % 2)}, opaque=opaque) for n, opaque in enumerate(opaques)]
    answers = commands(twins.feed(b"".join(binary(header, bytes(n)) for n, header in enumerate(headers))))
    assert twins.taken - before == 40
    assert [answer.opaque for answer in answers] == opaques
    assert {answer.serialize_type for answer in answers} == {BINARY}
    assert {answer.language for answer in answers} == {LanguageCode.PYTHON}
    assert {answer.code for answer in answers} == {0}
    assert [(answer.ext_fields or {})["queueId"] for answer in answers] == ["0", "1"] * 20


def test_sends_of_many_connections_are_taken_together(twins: Twins) -> None:
    before, calls = twins.taken, twins.calls
    reads = [
        (frame(send(opaque=n)) if n % 3 else b"") + binary(binary_send(opaque=100 + n)) * (n % 4 + 1)
        for n in range(8)
    ]
    answers = twins.feed_together(reads)
    count = sum(len(commands(own)) for own in answers)
    assert twins.taken - before == count == sum(n % 4 + 1 + (n % 3 > 0) for n in range(8))
    assert twins.calls - calls == 1


def test_a_one_way_send_is_taken_and_not_answered(twins: Twins) -> None:
    before = twins.taken
    assert twins.feed(binary(binary_send(flag=2)) * 2) == b""
    assert twins.taken - before == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_sends_of_java_clients_are_taken(twins: Twins, version: str) -> None:
    recorded = recorded_requests(version, 310, BINARY)
    assert twins.feed_twice(recorded) > len(recorded) // 2


@pytest.mark.parametrize(
    "header",
    [
        binary_send(language=9, version=-1),
        binary_send(language=255, version=32_767),
        binary_send({"a": None, "n": None}) + entry(b"a", b"\\\x01\x7f") + entry(b"n", b"null"),
        binary_send({"j": None, "k": None, "m": None, "n": None}),
        binary_send({"more": "text", "x": '"\\'}),
        header_of(ENTRIES + entry(b"more", b"1") + entry(b"more", b"2")),
        header_of(entry(b"x" * 32_767, b"1") + ENTRIES),
        header_of(b"".join(entry(k.encode(), v.encode()) for k, v in reversed(ORDINARY.items()))),
        binary_send({"i": f'x\x01\\u0041\\"\n"\x02UNIQ_KEY\x01{ID}'}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02KEYS\x01k1 k2  k1\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02x\x01{'y' * 30_000}\x02"}),
        binary_send({"i": f"city\x01Kraków 漢 \U0001f600\x02UNIQ_KEY\x01{ID}\x02é"}),
        binary_send({"l": "-1", "g": "-5", "h": "-2147483648", "f": "1"}),
    ],
)
def test_what_is_ordinary_enough_is_taken(twins: Twins, header: bytes) -> None:
    length = struct.pack(">i", len(header) - HEAD.size - 4)  # of entries that were added
    before = twins.taken
    answers = twins.feed(binary(header[: HEAD.size] + length + header[HEAD.size + 4 :]) * 2)
    assert twins.taken - before == 2
    assert len(commands(answers)) == 2


def test_forms_may_be_mixed(twins: Twins) -> None:
    forms = [n * n % 3 == 1 for n in range(30)]
    data = b"".join(
        binary(binary_send(opaque=n)) if is_binary else frame(send(opaque=n))
        for n, is_binary in enumerate(forms)
    )
    before = twins.taken
    answers = commands(twins.feed(data))
    assert twins.taken - before == 30
    assert [answer.opaque for answer in answers] == list(range(30))
    assert [answer.serialize_type == BINARY for answer in answers] == forms


# -- what is not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02DELAY\x013\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02TRAN_MSG\x01true\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02CLUSTER\x01mine\x02"}),
        binary_send({"i": "KEYS\x01k1\x02"}),
        binary_send({"i": "UNIQ_KEY\x01a-b\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02TAGS\x01é\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02KEYS\x01k1 漢\x02"}),
        binary_send({"i": "UNIQ_KEY\x01é\x02"}),
        changed(b"TagA", b"Tag\xff"),
        changed(b"WAIT\x01true", b"x\x01\xed\xa0\x803456"),  # half of a surrogate pair
        changed(b"WAIT\x01true", b"x\x01\xc0\x8034567"),  # longer than need be
        changed(b"WAIT\x01true", b"x\x01345678\xc3"),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02zero\x01\0\x02"}),
        binary_send({"i": f"UNIQ_KEY\x01{ID}\x02x\x01{'y' * 33_000}\x02"}),
        binary_send({"i": None}),
        binary_send({"i": ""}),
        binary_send({"i": "null"}),
        binary_send({"e": "-1"}),
        binary_send({"e": "99"}),
        binary_send({"e": "00"}),
        binary_send({"e": "+1"}),
        binary_send({"e": " 1"}),
        binary_send({"e": "1.0"}),
        binary_send({"e": "2147483648"}),
        binary_send({"f": "4"}),
        binary_send({"g": "soon"}),
        binary_send({"g": "9223372036854775808"}),
        binary_send({"d": None}),
        binary_send({"l": "null"}),
        binary_send({"m": "true"}),
        binary_send({"m": "1"}),
        binary_send({"k": "False"}),
        binary_send({"a": "prodücers"}),
        binary_send({"ä": "x"}),
        binary_send({"x": ""}),
        binary_send({"": "x"}),
        binary_send({"b": "%RETRY%group"}),
        binary_send({"b": "TopicTest\0"}),
        binary_send(code=10),
        binary_send(code=11),
        binary_send(flag=1),
        binary_send(flag=3),
        binary_send(flag=4),
        binary_send(flag=-1),
        binary_send(remark="why"),
        header_of(ENTRIES, remark=b"\xff"),
        header_of(ENTRIES + entry(b"e", b"1")),
        header_of(entry(b"i", b"x\x01y\x02") + ENTRIES),
        header_of(ENTRIES + entry(b"e", b"0")),
        header_of(ENTRIES + entry(b"m", b"")),
        header_of(ENTRIES + entry(b"", b"")),
        header_of(ENTRIES + entry(b"x", b"\xff")),
        header_of(ENTRIES + entry(b"\xc3", b"x")),
        header_of(ENTRIES + entry(b"x", b"\xed\xa0\x80")),
        header_of(ENTRIES + entry(b"x" * 32_768, b"1")),
        header_of(ENTRIES + b"\0"),
        header_of(ENTRIES + b"\0\1x"),
        header_of(ENTRIES + b"\0\1x\0"),
        header_of(ENTRIES + b"\0\1x\0\0\0"),
        header_of(ENTRIES + b"\0\1x\0\0\0\2y"),
        header_of(ENTRIES + b"\0\1x\0\0\0\3y"),
        header_of(ENTRIES + b"\0\1x\xff\xff\xff\xffy"),
        header_of(ENTRIES + b"\0\1x\x7f\xff\xff\xffy"),
        header_of(ENTRIES + b"\0\1x\x80\0\0\0y"),
        header_of(ENTRIES + b"\xff\xffx\0\0\0\1y"),
        header_of(ENTRIES, more=1),
        header_of(ENTRIES, more=-1),
        header_of(ENTRIES, more=-len(ENTRIES)),
        header_of(ENTRIES, more=-len(ENTRIES) - 1),
        header_of(ENTRIES)[:-1],
        header_of(ENTRIES)[:21],
        header_of(b""),
        header_of(b"")[:20],
        header_of(b"")[:2],
        HEAD.pack(310, 0, 501, 7, 0, -1) + struct.pack(">i", len(ENTRIES)) + ENTRIES,
        HEAD.pack(310, 0, 501, 7, 0, 2**31 - 1) + struct.pack(">i", len(ENTRIES)) + ENTRIES,
        send(),  # of the other form
    ],
)
def test_what_needs_a_look_is_left_alone(twins: Twins, header: bytes) -> None:
    before = twins.taken
    twins.feed(binary(header) + binary(binary_send()))
    assert twins.taken == before
    twins.feed(binary(binary_send()) + frame(send()) + binary(header) + binary(binary_send()))
    assert twins.taken - before == 2


def test_a_topic_that_is_not_there_yet_is_left_alone_once(twins: Twins) -> None:
    before = twins.taken
    data = binary(binary_send({"b": "NotThereYetInBinary"}))
    twins.feed(data)
    assert twins.taken == before
    twins.feed(data)
    assert twins.taken - before == 1


def test_a_binary_header_is_no_json(twins: Twins) -> None:
    before = twins.taken
    twins.feed(frame(binary_send()))
    twins.feed(frame(send()) + frame(binary_send()))
    assert twins.taken - before == 1


@pytest.mark.parametrize(
    ("serialize_type", "header"),
    [(BINARY, binary_send(code=11)), (BINARY, send()), (0, send(code=11)), (0, binary_send()), (2, send())],
)
def test_the_kernel_looks_itself(twins: Twins, serialize_type: int, header: bytes) -> None:
    broker = twins.brokers[0]
    frames = [frame(send()), binary(binary_send())]
    assert twins.run(broker.count_ordinary(frames)) == 2
    assert twins.run(broker.count_ordinary([*frames, frame(header, b"", serialize_type), *frames])) == 2


def test_a_region_of_any_letters(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(kernel, monkeypatch)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        others = started(runner, stack, tmp_path, region_id="50%d é" + "x" * (ord("%") - 7), trace_on=False)
        others.feed(frame(send()))
        others.feed(binary(binary_send()) + frame(send()))
        assert others.taken == 2
        others.assert_same()
        runner.run(stack.aclose())


# -- anything -----------------------------------------------------------------------------------------

_NUMBERS = st.sampled_from(
    ["0", "1", "7", "-1", "007", "1e3", "2147483648", "-2147483648", "", " 1", "²", "1_0", "null", "true"]
)
_PROPERTIES = st.builds(
    lambda pairs, end: "\x02".join(pairs) + end,
    st.lists(
        st.sampled_from(
            ["TAGS\x01TagA", "TAGS\x01", "KEYS\x01k1 k2", "KEYS\x01k1", "WAIT\x01true", "WAIT\x01false"]
            + [
                "DELAY\x013",
                "TRACE_ON\x01x",
                "x\x01\\n",
                "x",
                "",
                "\x01",
                "é\x01x",
                "x\x01漢",
                "x\x01\U0001f600",
                "KEYS\x01k1 é",
                "x\x01\0",
            ]
            + [f"UNIQ_KEY\x01{ID}", "UNIQ_KEY\x01", "UNIQ_KEY\x01a b"]
        ),
        max_size=6,
    ),
    st.sampled_from(["", "\x02", f"\x02UNIQ_KEY\x01{ID}\x02", f"\x02UNIQ_KEY\x01{ID}"]),
)
_ODD_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["TopicTest", "Other", "New", "a b", "", None]),
        "i": _PROPERTIES,
        **{letter: _NUMBERS for letter in "defghjl"},
        **{letter: st.sampled_from(["true", "false", "False", "0", "", None, "no"]) for letter in "km"},
        **{letter: st.sampled_from(["x", "\\", 'q"', "", None, "é", "null"]) for letter in "acn"},
        "z": st.sampled_from(["more", "", "é"]),
    },
)
_ODD_HEADS = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.sampled_from([0, 2, 2, 1, 3, -1, 4]),
        "opaque": st.integers(-(2**31), 2**31 - 1),
        "language": st.integers(0, 255),
        "version": st.integers(-(2**15), 2**15 - 1),
        "remark": st.sampled_from([None, None, "why", "é"]),
        "code": st.sampled_from([310, 310, 310, 10, 320, 999]),
    },
)


@st.composite
def _headers(draw: st.DrawFn) -> bytes:
    fields = draw(st.one_of(st.just({}), _ODD_FIELDS))
    header = bytearray(binary_send(fields, **draw(st.one_of(st.just({}), _ODD_HEADS))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):  # now and then bytes that are wrong
        at = draw(st.integers(0, len(header) - 1))
        gone = draw(st.integers(0, 2))
        header[at : at + gone] = draw(st.binary(max_size=2))
        header = header or bytearray(b"\1")
    return bytes(header)


_FRAMES = st.one_of(
    st.builds(binary, _headers(), st.binary(max_size=40)),
    st.builds(binary, _headers(), st.binary(max_size=40)),
    st.sampled_from([frame(send()), binary(binary_send()), frame(send({"e": "1"}, flag=2))]),
)


@given(st.lists(st.lists(_FRAMES, min_size=1, max_size=4), min_size=1, max_size=2))
def test_any_sends_come_out_the_same(twins: Twins, reads: list[list[bytes]]) -> None:
    first = b"" if len(reads) == 1 else binary(binary_send())
    twins.feed_together([first + b"".join(frames) for frames in reads])


@pytest.mark.parametrize("seed", range(4))
def test_headers_with_single_bytes_changed_come_out_the_same(twins: Twins, seed: int) -> None:
    chosen = random.Random(seed)
    good = binary_send()
    for _ in range(100):
        header = bytearray(good)
        header[chosen.randrange(2, len(good))] = chosen.choice((0, 1, 2, 0x25, 0x7F, 0x80, 0xFF, 0x31))
        twins.feed(binary(binary_send()) + binary(bytes(header)) + frame(send()))


# -- what goes wrong ----------------------------------------------------------------------------------


def test_sends_of_a_failed_write_fail_one_by_one(failing: tuple[Twins, list[FaultyFiles]]) -> None:
    twins, files = failing
    twins.feed(frame(send()))
    for one in files:
        one.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
    data = binary(binary_send(opaque=1)) + frame(send(opaque=2)) + binary(binary_send(flag=2))
    answers = commands(twins.feed(data))
    assert twins.taken == 3
    assert [(answer.serialize_type, answer.opaque) for answer in answers] == [(BINARY, 1), (0, 2)]
    assert {answer.remark for answer in answers} == {PutStatus.SERVICE_NOT_AVAILABLE.remark}
    twins.feed(data)
    twins.assert_same()


_HOST = "7F00000100002A9F"
_JSON_TEMPLATES = f"{_HOST}%016X%d%d%d".encode(), f"{_HOST}%016X%d%d%s%d".encode()
_BINARY_HEAD = bytes(25) + _HOST.encode()
_BINARY_TEMPLATES = _BINARY_HEAD + b"%016X%d%d", _BINARY_HEAD + b"%016X%d%d%s"


@pytest.mark.parametrize(
    ("position", "template"),
    [
        (0, b""),
        (0, _JSON_TEMPLATES[1]),
        (1, _JSON_TEMPLATES[0]),
        (1, _JSON_TEMPLATES[1][1:]),
        (1, _JSON_TEMPLATES[1] + b"%"),
        (1, _JSON_TEMPLATES[1] + b"%d"),
        (1, _JSON_TEMPLATES[1][:-1]),
        (1, _JSON_TEMPLATES[1].replace(b"%016X", b"%012X")),
        (2, _BINARY_TEMPLATES[1]),
        (3, _BINARY_TEMPLATES[0]),
        (3, _BINARY_TEMPLATES[1][1:]),
        (3, bytes(60)),
    ],
)
def test_a_template_that_does_not_fit_is_refused(kernel: ModuleType, position: int, template: bytes) -> None:
    templates = [*_JSON_TEMPLATES, *_BINARY_TEMPLATES]
    kernel.send_setup(b"", (), tuple(templates), bytes(8))
    templates[position] = template
    with pytest.raises(ValueError, match="template"):
        kernel.send_setup(b"", (), tuple(templates), bytes(8))


@pytest.mark.parametrize(
    "groups",
    [
        [None],
        [()],
        [([], bytes(8))],
        [(None, None, bytes(8))],
        [(None, [], bytes(7))],
        [(None, [], None)],
        [(None, [None], bytes(8))],
        [(None, [(b"",)], bytes(8))],
        [(None, [(None, 0, 0)], bytes(8))],
        [(None, [(b"", None, 0)], bytes(8))],
        [(None, [(b"", 0, 1)], bytes(8))],
        [(None, [(b"", -1, 0)], bytes(8))],
        [(None, [(b"", 1 << 70, 1 << 70)], bytes(8))],
    ],
)
def test_groups_that_are_made_up_otherwise_are_refused(kernel: ModuleType, groups: list[Any]) -> None:
    setup = kernel.send_setup(b"", (), (*_JSON_TEMPLATES, *_BINARY_TEMPLATES), bytes(8)), None
    # A result together with an error would be a SystemError of another kind.
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, SystemError)) as raised:
        kernel.encode_sends(groups, setup, {}, {}, None, None, {}, ({}, [], 1), 0, 0, 0, 0, 0)
    assert "returned a result" not in str(raised.value)
