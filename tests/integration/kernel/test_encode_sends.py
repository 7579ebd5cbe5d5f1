"""encode_sends: with the kernel a broker stores and answers, byte for byte, what it does without."""

from __future__ import annotations

import asyncio
import errno
import json
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import StorageError
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.testing.faulty_files import FaultyFiles
from tests.golden.frames import VERSIONS
from tests.integration.kernel.kernel_kit import FedBroker, install
from tests.integration.kernel.twins import ID, Twins, frame, recorded_requests, send, started


def utf8(header: bytes) -> bytes:
    """The same header without escapes for what is not ASCII."""
    return json.dumps(json.loads(header), separators=(",", ":"), ensure_ascii=False).encode()


# -- what is taken ------------------------------------------------------------------------------------


def test_ordinary_sends_are_taken(twins: Twins) -> None:
    before = twins.taken
    data = b"".join(frame(send({"e": str(n % 2)}, opaque=n), bytes(n)) for n in range(40))
    answers = twins.feed(data)
    assert twins.taken - before == 40
    assert answers.count(b'"opaque":') == 40


def test_a_one_way_send_is_taken_and_not_answered(twins: Twins) -> None:
    before = twins.taken
    assert twins.feed(frame(send(flag=2)) + frame(send(flag=2))) == b""
    assert twins.taken - before == 2


def test_properties_may_be_utf8(twins: Twins) -> None:
    before = twins.taken
    properties = f"city\x01Kraków\n漢 \U0001f600\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02é"
    assert twins.feed(frame(utf8(send({"i": properties}))) * 2).count(b'"code":0') == 2
    assert twins.taken - before == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_sends_of_java_clients_are_taken(twins: Twins, version: str) -> None:
    assert twins.feed_twice(recorded_requests(version, 310)) > 0


@pytest.mark.parametrize(
    "header",
    [
        send({"b": "TopicTest", "i": f"UNIQ_KEY\x01{ID}\x02DELAY\x013\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02TRAN_MSG\x01true\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02_SYS_MSG_PRIORITY_\x011\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02CLUSTER\x01mine\x02"}),
        send({"i": "KEYS\x01k1\x02"}),
        send({"i": "UNIQ_KEY\x01a-b\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02city\x01Kraków\x02"}),
        send({"i": f"UNIQ_KEY\x01{ID}\x02x\x01{'y' * 33_000}\x02"}),
        send({"i": None}),
        send({"e": "-1"}),
        send({"e": "99"}),
        send({"f": "4"}),
        send({"m": "true"}),
        send({"b": "NotThereYet"}),
        send({"b": "%RETRY%group"}),
        send({"g": "soon"}),
        send({"d": None}),
        send(code=10),
        send().replace(b'"extFields":', b'"extFields":{"e":"1"},"extFields":'),
        send().replace(b'"e":', b'"j":"5","extFields":{"e":"0"},"e":'),
        send().replace(b'"j":"0"', b'"j":"5","j":"0"'),
        send().replace(b'"i":', b'"i":"\\q","i":'),
        send(flag=1),
        send(remark="why"),
        utf8(send({"i": f"UNIQ_KEY\x01{ID}\x02TAGS\x01漢\x02"})),
        utf8(send({"i": f"UNIQ_KEY\x01{ID}\x02KEYS\x01k1 é\x02"})),
        utf8(send({"i": "UNIQ_KEY\x01é\x02"})),
        utf8(send({"a": "é"})),
        utf8(send({"é": "x"})),
        utf8(send(language="é")),
        utf8(send(é="x")),
        send().replace(b"WAIT", b"x\xff"),
        send().replace(b"WAIT", b"\xed\xa0\x80"),  # half of a surrogate pair
        send().replace(b"WAIT", b"\xc0\x80"),  # longer than need be
        send().replace(b"WAIT", b"\xc3\\u0041"),
        send().replace(b"WAIT", b"\\\xc3\xa9"),
    ],
)
def test_what_needs_a_look_is_left_alone(twins: Twins, header: bytes) -> None:
    before = twins.taken
    twins.feed(frame(header) + frame(send()))
    assert twins.taken == before


def test_the_rest_of_a_read_goes_the_general_way(twins: Twins) -> None:
    before = twins.taken
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}))
    assert twins.feed(frame(send()) + odd + frame(send())).count(b'"opaque":') == 3
    assert twins.taken - before == 1


def test_sends_of_many_connections_are_taken_together(twins: Twins) -> None:
    calls, before = twins.calls, twins.taken
    reads = [b"".join(frame(send(opaque=100 * n + m)) for m in range(3)) for n in range(20)]
    answers = twins.feed_together(reads)
    assert twins.taken - before == 60 and twins.calls - calls == 1
    for n, answer in enumerate(answers):
        assert [f'"opaque":{100 * n + m},'.encode() in answer for m in range(3)] == [True] * 3
        assert answer.count(b'"opaque":') == 3


def test_a_slow_path_send_does_not_delay_the_others(twins: Twins) -> None:
    before = twins.taken
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}))
    two = frame(send()) * 2
    assert [
        answer.count(b'"opaque":') for answer in twins.feed_together([two, odd + two, two + odd, two])
    ] == [
        2,
        3,
        3,
        2,
    ]
    assert twins.taken - before == 6


def test_many_slow_path_sends_do_not_keep_the_kernel_busy(twins: Twins) -> None:
    calls = twins.calls
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}))
    assert all(b'"opaque":' in answer for answer in twins.feed_together([odd] * 50))
    assert twins.calls - calls == 8


def test_queues_that_were_never_used_are_made_on_the_way(twins: Twins) -> None:
    topic = {"b": "New", "d": "8"}
    twins.feed(frame(send({**topic, "e": "0"})))  # makes the topic, and this queue
    taken, calls = twins.taken, twins.calls
    reads = [
        b"".join(frame(send({**topic, "e": str(n)})) for n in (3, 0, 5, 3)),
        frame(send({**topic, "e": "7"})),
    ]
    twins.feed_together(reads)
    assert (twins.taken - taken, twins.calls - calls) == (5, 1)
    twins.assert_same()


def test_queues_are_made_ready_anew_after_a_start(twins: Twins) -> None:
    for broker in twins.brokers:
        for queue in broker.services.store.queues.items():
            queue.encoder = None  # as in a store that was just opened
    before = twins.taken
    twins.feed(frame(send({"e": "0"})) + frame(send({"e": "1"})))
    assert twins.taken - before == 2


def test_a_queue_that_is_gone_from_the_topic_grows_once(twins: Twins) -> None:
    """A topic may be deleted while a run is encoded; offsets must not be given twice then either."""
    broker = twins.brokers[0]
    queues = broker.services.store.queues
    gone = queues.get("TopicTest", 3)
    broker.services.store.appender.prepare(gone)
    del queues.by_topic["TopicTest"][3]
    frames = [frame(send({"e": "3"})), frame(send({"e": "0"})), frame(send({"e": "3"}))]
    grown = twins.run(broker.grown(frames, lambda topic, queue_id: gone))
    assert [(queue.queue_id, len(units) // UNIT_BYTES) for queue, _, units in grown] == [(3, 2), (0, 1)]


def test_a_queue_that_nothing_can_be_put_into_is_refused_as_always(twins: Twins) -> None:
    topic = "t" * 128
    for broker in twins.brokers:
        assert broker.services.topics.create_in_send_back(topic, 2, 6) is not None
    before = twins.taken
    for queue_id in ("0", "0", "1"):
        answers = twins.feed(frame(send({"b": topic, "e": queue_id})) + frame(send()))
        assert b"has 128 bytes, 127 are allowed" in answers
    assert twins.taken == before


def test_what_was_sent_before_another_request_is_put_before_it(twins: Twins) -> None:
    """A send that does not begin with its code passes for another kind: it lies behind those before it."""
    head = json.loads(send())
    other = json.dumps({"flag": head.pop("flag"), **head}, separators=(",", ":")).encode()
    before = twins.taken
    twins.feed_together([frame(send(), b"first") + frame(other, b"other") + frame(send()), frame(send())])
    assert twins.taken - before == 2


def test_a_send_that_comes_in_parts_is_taken(twins: Twins) -> None:
    data = b"".join(frame(send(opaque=n), bytes(n)) for n in range(3))
    for size in (1, 7, 100, len(data) - 1):
        before = twins.taken
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        assert twins.feed_together([parts])[0].count(b'"code":0') == 3
        assert twins.taken - before == 3


def test_what_comes_in_parts_and_is_no_send_is_handled_in_its_turn(twins: Twins) -> None:
    other = frame(send(code=11))
    data = frame(send()) * 2 + other + frame(send()) * 2
    before = twins.taken
    middle = len(frame(send())) * 2 + 5
    twins.feed_together([[data[:middle], data[middle:]], [data[: middle + len(other)], frame(send())]])
    assert twins.taken - before == 4, "what follows another request in one read is left alone"


def test_a_frame_that_is_too_large_is_refused_as_always(twins: Twins) -> None:
    large = frame(send(), bytes(20_000_000))[:100_000]  # so much is read at once, or a little more
    for parts in ([frame(send()) + large], [frame(send()) + large[:6], large[6:]], [large[:3], large[3:]]):
        twins.feed_together([parts])


def test_what_was_sent_before_garbage_is_stored(twins: Twins) -> None:
    log = twins.brokers[0].services.store.log
    end = log.max_phy_offset
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}, flag=2))
    twins.feed(frame(send(flag=2)) + odd + odd + b"\xff" * 100)
    assert log.max_phy_offset - end > 3 * 100


PADDED = send({"i": f"UNIQ_KEY\x01{ID}\x02x\x01{'y' * 30_000}\x02"})


@pytest.mark.parametrize(
    "data", [frame(send(), bytes(30_000)), frame(PADDED, b"")], ids=["bodies", "headers"]
)
def test_a_megabyte_is_written_before_the_cycle_ends(twins: Twins, data: bytes) -> None:
    async def grows(broker: FedBroker) -> int:
        connection, _ = broker.connect()
        end = broker.services.store.log.max_phy_offset
        for _ in range(40):
            connection.data_received(data)
        grown = broker.services.store.log.max_phy_offset - end
        broker.services.cycles.close()
        return grown

    assert all(twins.run(grows(broker)) > 1_000_000 for broker in twins.brokers)


def test_what_a_connection_sent_before_it_was_cut_is_stored(twins: Twins) -> None:
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}, flag=2))

    async def grows(broker: FedBroker) -> int:
        connection, _ = broker.connect()
        end = broker.services.store.log.max_phy_offset
        connection.data_received(frame(send(flag=2)) + odd * 3)
        connection.abort("a test")
        broker.services.cycles.close()
        return broker.services.store.log.max_phy_offset - end

    first, second = (twins.run(grows(broker)) for broker in twins.brokers)
    assert first == second > 4 * 100


def test_a_peer_that_does_not_take_its_answers_is_read_no_more(twins: Twins) -> None:
    data = b"".join(frame(send(opaque=n)) for n in range(100))

    async def reads_until_paused(broker: FedBroker) -> int:
        connection, transport = broker.connect(reads=False)
        count = 0
        while transport.reading and count < 100:
            connection.data_received(data)
            broker.services.cycles.close()
            count += 1
        end = broker.services.store.log.max_phy_offset
        transport.take()  # now it does, and what waited is handled
        broker.services.cycles.close()
        assert transport.reading and broker.services.store.log.max_phy_offset > end
        connection.abort("the test is over")
        return count

    with_kernel, without = (twins.run(reads_until_paused(broker)) for broker in twins.brokers)
    assert with_kernel == without < 100
    twins.assert_same()


def test_a_frame_that_closes_its_connection_keeps_what_follows_from_being_stored(twins: Twins) -> None:
    """It is so large that the pass ends with it, and the rest of it came with the next send."""
    broken = frame(send()[:-5], bytes(2_000_000))
    twins.feed_together([[frame(send()) + broken[:100], broken[100:] + frame(send())]])
    twins.assert_same()


def test_a_full_file_is_closed_by_the_general_way(twins: Twins) -> None:
    body = bytes(60_000)
    for _ in range(40):  # files of a megabyte
        twins.feed(frame(send(), body) * 2)
    assert len(twins.brokers[0].services.store.log.log_files) > 2


# -- anything -----------------------------------------------------------------------------------------

_TEXTS = st.text(st.sampled_from('ab1 "\\/\n\t\x01\x7fé漢\uffff\U0001f600'), max_size=6)
_NAMES = st.sampled_from(
    [
        "UNIQ_KEY",
        "TAGS",
        "KEYS",
        "WAIT",
        "DELAY",
        "MSG_REGION",
        "TRACE_ON",
        "CLUSTER",
        "UNIQ_KEYS",
        "x",
        "",
        "é",
    ]
)
_VALUES = st.one_of(_TEXTS, st.sampled_from(["true", "false", "3", ID, "k1", "k1 k2", "TagA"]))
_PAIRS = st.lists(st.tuples(_NAMES, st.sampled_from(["\x01", "\x01\x01", ""]), _VALUES), max_size=6)
_PROPERTIES = st.builds(
    lambda pairs, end: "\x02".join(name + mark + value for name, mark, value in pairs) + end,
    _PAIRS,
    st.sampled_from(["", "\x02", "\x02\x02", f"\x02UNIQ_KEY\x01{ID}\x02", f"\x02UNIQ_KEY\x01{ID}"]),
)
_NUMBERS = st.sampled_from(
    ["0", "1", "7", 1, 3, "-1", "007", "1e3", "2147483648", "", None, True, 1.5, " 1", "²"]
)
_ODD_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["TopicTest", "Other", "New", "a b", "", None]),
        "i": _PROPERTIES,
        **{letter: _NUMBERS for letter in "defghjl"},
        **{letter: st.sampled_from(["true", "false", False, "False", "0", None, "no"]) for letter in "km"},
        **{letter: st.sampled_from(["x", "\\", 'q"', None, 5, "é"]) for letter in "acn"},
        "z": st.sampled_from(["more", 5, None, ["list"], {"of": "more"}, "\\u"]),
    },
)
_ODD_HEADS = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.sampled_from([0, 2, 1, "0", -1, 4]),
        "opaque": st.sampled_from([0, -5, 2**31, "9", 1.0]),
        "language": st.sampled_from(["GO", 12, None, "é"]),
        "version": st.sampled_from([0, 433, "501", None]),
        "more": st.sampled_from(["text", 1, None, "\\"]),
    },
)


@st.composite
def _headers(draw: st.DrawFn) -> bytes:
    whole = json.loads(
        send(draw(st.one_of(st.just({}), _ODD_FIELDS)), **draw(st.one_of(st.just({}), _ODD_HEADS)))
    )
    if draw(st.booleans()):
        whole = dict(reversed(whole.items()))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":\t")]))
    text = json.dumps(whole, separators=separators, ensure_ascii=draw(st.booleans())).encode()
    if draw(st.integers(0, 9)) == 0:  # a field twice
        twice = draw(st.sampled_from(['"e":"1",', '"i":"\\\\q",', '"j":"5",', '"m":"true",']))
        text = text.replace(b'"g":', twice.encode() + b'"g":', 1)
    if draw(st.integers(0, 9)) == 0:  # and now and then no JSON at all
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.binary(max_size=2)) + text[at + 1 :]
    return text


_FRAMES = st.builds(frame, _headers(), st.binary(max_size=40), st.sampled_from([0, 0, 0, 1]))


@given(st.lists(st.lists(_FRAMES, min_size=1, max_size=4), min_size=1, max_size=3))
def test_any_sends_come_out_the_same(twins: Twins, reads: list[list[bytes]]) -> None:
    first = b"" if len(reads) == 1 else frame(send())
    twins.feed_together([first + b"".join(frames) for frames in reads])


@given(st.lists(_FRAMES, min_size=1, max_size=4), st.lists(st.integers(1, 500), max_size=6))
def test_any_sends_in_parts_come_out_the_same(twins: Twins, frames: list[bytes], sizes: list[int]) -> None:
    data, parts = frame(send()) + b"".join(frames), []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    twins.feed_together([[*filter(None, parts), data]])


# -- what goes wrong ----------------------------------------------------------------------------------


def test_sends_of_a_failed_write_fail_one_by_one(failing: tuple[Twins, list[FaultyFiles]]) -> None:
    twins, files = failing
    twins.feed(frame(send()))
    for one in files:
        one.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
    answers = twins.feed(b"".join(frame(send(opaque=n, flag=2 * (n == 1))) for n in range(3)))
    assert twins.taken == 3
    assert answers.count(PutStatus.SERVICE_NOT_AVAILABLE.remark.encode()) == 2
    assert b'"code":0' in twins.feed(frame(send()))
    twins.assert_same()


def test_nothing_is_taken_while_puts_are_refused(twins: Twins) -> None:
    cause = StorageError("no space")
    for broker in twins.brokers:
        broker.services.store.appender.refuse("a test", cause)
    before = twins.taken
    try:
        answers = twins.feed_together([frame(send()) * 2, frame(send())])
    finally:
        for broker in twins.brokers:
            broker.services.store.appender.refuse("a test", None)
    assert [answer.count(b"no space") for answer in answers] == [2, 1]
    assert twins.taken == before


def test_nothing_is_taken_while_too_much_waits_for_the_disk(twins: Twins) -> None:
    before = twins.taken
    for broker in twins.brokers:
        broker.services.commit_cycle.waiting_bytes += 1 << 40
        broker.services.commit_cycle.waiting_messages += 1
    try:
        answers = twins.feed(frame(send()) * 2)
    finally:
        for broker in twins.brokers:
            broker.services.commit_cycle.waiting_bytes -= 1 << 40
            broker.services.commit_cycle.waiting_messages -= 1
    assert answers.count(b"REJECTREQUEST") == 2
    assert twins.taken == before


def test_nothing_is_taken_where_a_hook_wants_to_see_sends(twins: Twins) -> None:
    before, seen = twins.taken, []
    for broker in twins.brokers:
        broker.services.hooks.before_send.append(seen.append)
    try:
        twins.feed(frame(send()) * 2)
    finally:
        for broker in twins.brokers:
            broker.services.hooks.before_send.clear()
    assert twins.taken == before and len(seen) == 4


def test_a_kernel_that_fails_is_used_no_more(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, kernel: ModuleType, tmp_path: Path
) -> None:
    calls = []

    def broken(*_: object) -> None:
        calls.append(1)
        raise MemoryError

    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "encode_sends", broken)
        install(kernel, patch)
        stack = AsyncExitStack()
        others = started(runner, stack, tmp_path)
        others.feed(frame(send()) * 2)
        others.feed(frame(send()) * 2)
        assert (others.taken, len(calls)) == (0, 1)
        statuses = [broker.services.kernel.current.status for broker in others.brokers]
        assert "not in use: it failed during a send" in statuses
        others.assert_same()
        runner.run(stack.aclose())


def test_a_kernel_that_has_failed_elsewhere_takes_no_sends(kernel: ModuleType, tmp_path: Path) -> None:
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        install(kernel, patch)
        stack = AsyncExitStack()
        others = started(runner, stack, tmp_path)
        for _ in range(2):  # the first send of a topic takes the slow path
            others.feed(frame(send()) * 2)
        taken = others.taken
        for broker in others.brokers:
            broker.services.kernel.fail("an atomic publish")
        others.feed(frame(send()) * 2)
        assert others.taken == taken > 0
        others.assert_same()
        runner.run(stack.aclose())
