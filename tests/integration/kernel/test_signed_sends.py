"""Signed sends: the kernel verifies those that it takes; the check decides on all others, as without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.model import AccessCall, Account, Needs
from kourou.access.signatures import is_signed_by
from kourou.broker.admission import RequestCheck, Ruling
from kourou.broker.send.signed_sends import SignedSends
from kourou.errors import RequestError
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import ResponseCode
from kourou.protocol.signature import signature_of
from kourou.transport.request import Request
from tests.integration.kernel.kernel_kit import FedBroker
from tests.integration.kernel.twins import ID, ORDINARY, Twins, binary_send, frame, send

SECRETS = {"alice": "12345678", "bob": "87654321", "ada": "key of a mere reader"}
SENDERS = {("alice", "TopicTest"), ("alice", "Other"), ("bob", "Other")}
BODY = b"hello"
REFUSED = b"refused by the rules"


class Rules:
    """Who may send where, as access control would have it; its check counts what it sees."""

    def __init__(self, broker: FedBroker) -> None:
        self.admission = broker.services.admission
        self.secrets, self.senders = dict(SECRETS), set(SENDERS)
        self.is_concerned = True
        self.seen = 0
        self.signed = SignedSends(self.sender, concerns=lambda connection: self.is_concerned)
        self.request_check = RequestCheck(self.check, fast_sends=self.signed)

    def check(self, request: Request) -> None:
        self.seen += 1
        fields = request.ext_fields
        call = AccessCall(
            code=request.code,
            version=request.version,
            fields=fields,
            body=request.body,
            address="127.0.0.1",
            needs=Needs(),
        )
        topic = fields.get("b") or fields.get("topic", "")
        secret = self.secrets.get(call.access_key)
        if secret is None or not is_signed_by(call, secret) or (call.access_key, topic) not in self.senders:
            raise RequestError(ResponseCode.NO_PERMISSION, REFUSED.decode())

    def sender(self, access_key: str, topic: str) -> Account | None:
        if (access_key, topic) not in self.senders:
            return None
        return Account(name=access_key, secret_key=self.secrets[access_key])

    def change(self) -> None:
        self.admission.invalidate()


@pytest.fixture
def rules(twins: Twins) -> Iterator[list[Rules]]:
    """Those of both brokers, the first with the kernel."""
    made = [Rules(broker) for broker in twins.brokers]
    for each in made:
        each.admission.add(each.request_check)
    for topic in ("TopicTest", "Other"):  # decided once, and learned
        twins.feed(signed({"b": topic}))
    twins.feed(signed({"b": "Other"}, user="bob"))
    yield made
    for each in made:
        each.admission.remove(each.request_check)


def fields_of(
    fields: dict[str, Any] | None = None,
    body: bytes = BODY,
    *,
    user: str = "alice",
    secret: str | None = None,
    unsigned: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The fields of an ordinary send, signed as Java does it."""
    given = {name: value for name, value in {**ORDINARY, **(fields or {})}.items() if value is not None}
    given["AccessKey"] = user
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    key = secret or SECRETS[user]
    return {**given, "Signature": signature_of(texts, body, key, without=unsigned)}


def header_of(fields: dict[str, Any], *, is_binary: bool = False, **head: Any) -> bytes:
    gone = {name: None for name in ORDINARY if name not in fields}
    return binary_send({**gone, **fields}, **head) if is_binary else send({**gone, **fields}, **head)


def signed(
    fields: dict[str, Any] | None = None,
    body: bytes = BODY,
    *,
    is_binary: bool = False,
    head: dict[str, Any] | None = None,
    **how: Any,
) -> bytes:
    """A whole signed send."""
    header = header_of(fields_of(fields, body, **how), is_binary=is_binary, **(head or {}))
    return frame(header, body, int(is_binary))


binary = pytest.mark.parametrize("is_binary", [False, True], ids=["json", "binary"])


# -- what is taken ------------------------------------------------------------------------------------


@binary
@pytest.mark.parametrize("size", [0, 1, 40, 55, 56, 57, 63, 64, 65, 119, 120, 1024, 5000])
def test_signed_sends_are_taken_without_the_check(
    twins: Twins, rules: list[Rules], size: int, is_binary: bool
) -> None:
    taken, seen = twins.taken, rules[0].seen
    data = b"".join(
        signed({"e": str(n % 2)}, bytes(size), is_binary=is_binary, head={"opaque": n}) for n in range(20)
    )
    twins.feed(data)
    assert (twins.taken - taken, rules[0].seen - seen) == (20, 0)


def test_sends_of_many_connections_and_accounts_are_verified_together(
    twins: Twins, rules: list[Rules]
) -> None:
    taken, calls = twins.taken, twins.calls
    reads = [
        signed({"b": "Other"}, bytes([n]) * 7 * n, user=("alice", "bob")[n % 2]) * (1 + n % 3)
        for n in range(30)
    ]
    answers = twins.feed_together(reads)
    assert [answer.count(b'"code":0') for answer in answers] == [1 + n % 3 for n in range(30)]
    assert (twins.taken - taken, twins.calls - calls) == (60, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"e": 1, "g": 1_700_000_000_000},  # as the C++ client writes numbers
        {"OnsChannel": "ALIYUN"},
        {"z": "after all", "A": "before all", "AccessKez": "between"},
        {"i": f'UNIQ_KEY\x01{ID}\x02city\x01\t"\\/Krakow\x02'},
        {"h": "-1"},
        {"n": None},
    ],
)
def test_fields_in_any_form_are_read_as_they_were_signed(
    twins: Twins, rules: list[Rules], fields: dict[str, Any]
) -> None:
    taken = twins.taken
    assert twins.feed(signed(fields) * 3).count(b'"code":0') == 3
    assert twins.taken - taken == 3


@binary
def test_utf8_is_signed_as_it_is(twins: Twins, rules: list[Rules], is_binary: bool) -> None:
    taken = twins.taken
    fields = fields_of({"i": f"UNIQ_KEY\x01{ID}\x02city\x01Kraków 漢 \U0001f600\x02"})
    header = header_of(fields, is_binary=is_binary)
    if not is_binary:
        header = json.dumps(json.loads(header), separators=(",", ":"), ensure_ascii=False).encode()
    twins.feed(frame(header, BODY, int(is_binary)) * 2)
    assert twins.taken - taken == 2


@binary
def test_batches_are_verified(twins: Twins, rules: list[Rules], is_binary: bool) -> None:
    body = encode_batch_entries([BatchEntry(0, bytes(n), b"") for n in range(1, 5)])
    head = {"code": 320}
    taken = twins.taken
    twins.feed(signed({"m": "true"}, body, is_binary=is_binary, head=head) * 2)
    assert twins.taken - taken == 2
    # With another body the signature is wrong.
    tampered = header_of(fields_of({"m": "true"}, body), is_binary=is_binary, **head)
    answer = twins.feed(frame(tampered, body[:-1] + b"x", int(is_binary)))
    assert REFUSED in answer and twins.taken - taken == 2


def test_bodies_of_megabytes_are_verified(twins: Twins, rules: list[Rules]) -> None:
    taken = twins.taken
    twins.feed(b"".join(signed(body=bytes(60_000 + n)) for n in range(9)))
    assert twins.taken - taken == 9


# -- what is not ---------------------------------------------------------------------------------------


def _without(name: str) -> bytes:
    fields = fields_of()
    del fields[name]
    return frame(header_of(fields))


def _with(name: str, value: str) -> bytes:
    return frame(header_of(fields_of() | {name: value}))


_SIGNATURE = fields_of()["Signature"]


@pytest.mark.parametrize(
    "data",
    [
        frame(send()),
        signed(secret="another"),
        signed(user="ada"),
        signed(user="nobody", secret="12345678"),
        signed({"b": "TopicTest"}, user="bob"),
        _without("Signature"),
        _without("AccessKey"),
        _with("Signature", ""),
        _with("Signature", _SIGNATURE[:-1]),
        _with("Signature", _SIGNATURE + "="),
        _with("Signature", _SIGNATURE[:-1] + "A"),
        _with("Signature", _SIGNATURE.swapcase()),
        _with("Signature", "A" * 27 + "="),
        _with("AccessKey", ""),
        _with("AccessKey", "bob"),
        _with("e", "1"),
        _with("b", "Other"),
        _with("i", f"UNIQ_KEY\x01{ID}\x02"),
        _with("more", "x"),
        frame(header_of(fields_of()), b"hellO"),
        frame(header_of(fields_of()), b"hello "),
        frame(header_of(fields_of()), b""),
    ],
)
def test_what_is_not_signed_rightly_is_refused(twins: Twins, rules: list[Rules], data: bytes) -> None:
    taken, seen = twins.taken, rules[0].seen
    ends = [broker.services.store.log.max_phy_offset for broker in twins.brokers]
    assert twins.feed(data).count(REFUSED) == 1
    assert [broker.services.store.log.max_phy_offset for broker in twins.brokers] == ends
    assert (twins.taken, rules[0].seen) == (taken, seen + 1)
    # Beside others that are: they are taken, and this is not.
    answers = twins.feed_together([signed() * 2, signed() * 3 + data + signed(), signed()])
    assert [answer.count(REFUSED) for answer in answers] == [0, 1, 0]
    assert twins.taken == taken + 6


@pytest.mark.parametrize("at", range(28))
def test_each_character_of_a_signature_is_compared(twins: Twins, rules: list[Rules], at: int) -> None:
    taken = twins.taken
    other = "A" if _SIGNATURE[at] != "A" else "B"
    assert REFUSED in twins.feed(_with("Signature", _SIGNATURE[:at] + other + _SIGNATURE[at + 1 :]))
    assert twins.taken == taken


@pytest.mark.parametrize(
    "data",
    [
        signed({"SecurityToken": "token"}),
        signed({"SecurityToken": "token"}, unsigned=("SecurityToken",)),
        signed({"__ZONE_NAME": "z", "__ZONE_MODE": "m"}, unsigned=("__ZONE_NAME", "__ZONE_MODE")),
        signed({"__ZONE_NAME": "z"}),
        signed({f"more{n}": "x" for n in range(30)}),
        signed({"i": f"UNIQ_KEY\x01{ID}\x02DELAY\x011\x02"}),
    ],
)
def test_what_the_check_accepts_though_the_kernel_does_not(
    twins: Twins, rules: list[Rules], data: bytes
) -> None:
    taken = twins.taken
    assert twins.feed(data).count(b'"code":0') == 1
    assert twins.taken == taken


def test_of_two_fields_of_one_name_the_kernel_takes_neither(twins: Twins, rules: list[Rules]) -> None:
    header = header_of(fields_of({"more": "x"}))
    taken = twins.taken
    for once, twice in (
        (b'"more":"x"', b'"more":"","more":"x"'),
        (b'"AccessKey":"alice"', b'"AccessKey":"bob","AccessKey":"alice"'),
        (b'"Signature":', b'"Signature":"x","Signature":'),
    ):
        assert header.count(once) == 1
        assert b'"code":0' in twins.feed(frame(header.replace(once, twice)))
    assert twins.taken == taken


# -- what was decided, and changes ---------------------------------------------------------------------


def _feed_changed(twins: Twins, rules: list[Rules]) -> tuple[bytes, int]:
    taken = twins.taken
    return twins.feed(signed() * 3), twins.taken - taken


def test_a_removed_account_is_refused_at_once(twins: Twins, rules: list[Rules]) -> None:
    for each in rules:
        del each.secrets["alice"]
        each.change()
    answer, taken = _feed_changed(twins, rules)
    assert (answer.count(REFUSED), taken) == (3, 0)


def test_another_secret_key_counts_at_once(twins: Twins, rules: list[Rules]) -> None:
    for each in rules:
        each.secrets["alice"] = "another"
        each.change()
    answer, taken = _feed_changed(twins, rules)
    assert (answer.count(REFUSED), taken) == (3, 0)
    twins.feed(signed(secret="another"))
    before = twins.taken
    twins.feed(signed(secret="another") * 3)
    assert twins.taken == before + 3


def test_a_topic_that_is_taken_away_is_refused_at_once(twins: Twins, rules: list[Rules]) -> None:
    for each in rules:
        each.senders.remove(("alice", "TopicTest"))
        each.change()
    answer, taken = _feed_changed(twins, rules)
    assert (answer.count(REFUSED), taken) == (3, 0)


def test_an_account_of_another_ruling_is_not_used(twins: Twins, rules: list[Rules]) -> None:
    """The kernel compares it itself, whatever the table has."""
    ruling, state, topics, producers = rules[0].signed._accounts["alice"]
    rules[0].signed._accounts["alice"] = (Ruling(), state, topics, producers)
    taken, seen = twins.taken, rules[0].seen
    assert twins.feed(signed() * 3).count(b'"code":0') == 3
    assert (twins.taken - taken, rules[0].seen - seen) == (0, 3)
    rules[0].signed._accounts["alice"] = (ruling, state, topics, producers)
    twins.feed(signed() * 3)
    assert twins.taken - taken == 3


def test_a_topic_of_another_account_is_not_used(twins: Twins, rules: list[Rules]) -> None:
    """The kernel looks at the topics of the account, for each send."""
    ruling, state, _, producers = rules[0].signed._accounts["alice"]
    rules[0].signed._accounts["alice"] = (ruling, state, {"Other"}, producers)
    taken = twins.taken
    twins.feed_together([signed({"b": "Other"}) * 2 + signed() + signed({"b": "Other"})])
    assert twins.taken - taken == 2


def test_a_connection_that_the_check_has_to_see_is_left_to_it(twins: Twins, rules: list[Rules]) -> None:
    rules[0].is_concerned = False
    taken, seen = twins.taken, rules[0].seen
    twins.feed(signed() * 3)
    assert (twins.taken - taken, rules[0].seen - seen) == (0, 3)


def test_a_second_check_without_signed_sends_closes_the_fast_path(twins: Twins, rules: list[Rules]) -> None:
    for other in (RequestCheck(lambda request: None), RequestCheck(lambda _: None, None, SignedSends(_none))):
        for each in rules:
            each.admission.add(other)
        taken = twins.taken
        try:
            twins.feed(signed() * 2)
            twins.feed(signed() * 2)
        finally:
            for each in rules:
                each.admission.remove(other)
        assert twins.taken == taken
        twins.feed(signed())
        twins.feed(signed() * 2)
        assert twins.taken == taken + 2


def _none(access_key: str, topic: str) -> None:
    return None


# -- anything -----------------------------------------------------------------------------------------

_TEXTS = st.text(st.sampled_from('ab1 "\\/\n\x01é漢\U0001f600'), max_size=80)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["TopicTest", "Other", "New"]),
        "i": st.builds(lambda text: f"UNIQ_KEY\x01{ID}\x02x\x01{text}\x02", _TEXTS),
        "e": st.sampled_from(["0", "1", 1, "9", "01"]),
        "z": st.sampled_from(["", "x", "é", 5, True, None]),
        "aa": st.text(max_size=5),
        "SecurityToken": st.just("t"),
        "kourouSequenced": st.sampled_from(["true", "false"]),
    },
)
_TAMPERINGS = st.sampled_from(["", "", "", "body", "field", "signature", "header"])


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    body, user = draw(st.binary(max_size=150)), draw(st.sampled_from(["alice", "alice", "bob", "ada"]))
    is_binary, how = draw(st.booleans()), draw(_TAMPERINGS)
    fields = fields_of(draw(_FIELDS), body, user=user)
    if is_binary:
        fields = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()
        }
    if how == "field":
        fields[draw(st.sampled_from(["e", "g", "i", "z", "AccessKey", "B"]))] = draw(
            st.sampled_from(["0", "1", "bob", ""])
        )
    if how == "signature":
        fields["Signature"] = draw(st.sampled_from(["", "A" * 27 + "=", fields["Signature"][::-1]]))
    header = header_of(fields, is_binary=is_binary)
    if how == "header":
        at = draw(st.integers(0, len(header) - 1))
        header = header[:at] + draw(st.binary(max_size=2)) + header[at + 1 :]
    if how == "body":
        body += b"x"
    return frame(header, body, int(is_binary))


@given(st.lists(st.lists(_frames(), min_size=1, max_size=5), min_size=1, max_size=4))
def test_any_signed_sends_come_out_the_same(twins: Twins, reads: list[list[bytes]]) -> None:
    made = [Rules(broker) for broker in twins.brokers]
    for each in made:
        each.admission.add(each.request_check)
    try:
        for _ in range(2):  # known accounts the second time
            twins.feed_together([signed() + b"".join(frames) for frames in reads])
    finally:
        for each in made:
            each.admission.remove(each.request_check)


def test_what_was_gathered_before_rules_came_is_verified(twins: Twins) -> None:
    """The check comes while unsigned sends wait for the end of the cycle."""
    broker = twins.brokers[0]

    async def answer() -> bytes:
        rules = Rules(broker)
        connection, transport = broker.connect()
        connection.data_received(frame(send()) * 2)
        broker.services.admission.add(rules.request_check)
        broker.services.cycles.close()
        broker.services.admission.remove(rules.request_check)
        await asyncio.sleep(0)
        return b"".join(transport.written)

    assert twins.run(answer()).count(REFUSED) == 2
