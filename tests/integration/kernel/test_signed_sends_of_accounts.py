"""Signed sends by the accounts of RocketMQ 4 and 5: the kernel takes what their rules allow, no more."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kourou.protocol.producer_sequence import ProducerOpening, owner_digits
from kourou.protocol.signature import signature_of
from tests.integration.kernel.kernel_kit import FedBroker, install
from tests.integration.kernel.twins import ID, ORDINARY, Twins, frame, send, started

_numbers = itertools.count()
KEY, SECRET = "producer-key", "secret-of-producer"
PLAIN_ACL = f"""
accounts:
- accessKey: {KEY}
  secretKey: {SECRET}
  defaultTopicPerm: DENY
  topicPerms:
  - TopicTest=PUB
  - TBW102=PUB
- accessKey: other-key
  secretKey: secret-of-other
  topicPerms:
  - TopicTest=PUB
"""


def plain_keys(root: Path) -> dict[str, Any]:
    conf = root / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    return {"acl_enable": True, "rocketmq_home": str(root / "home")}


def auth_keys(root: Path) -> dict[str, Any]:
    user = json.dumps({"username": KEY, "password": SECRET})
    return {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": user,
    }


@pytest.fixture(scope="module", params=[plain_keys, auth_keys], ids=["RocketMQ 4", "RocketMQ 5"])
def guarded(
    request: pytest.FixtureRequest, kernel: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twins]:
    """Two brokers with access control that know the topic; the first has the kernel."""
    root = tmp_path_factory.mktemp("guarded")
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        twins = started(runner, stack, root, **request.param(root))
        assert b'"code":0' in twins.feed(signed())
        yield twins
        runner.run(stack.aclose())


def signed(
    topic: str = "TopicTest", *, key: str = KEY, secret: str = SECRET, body: bytes = b"hello"
) -> bytes:
    fields = {**ORDINARY, "b": topic, "AccessKey": key}
    return frame(send({**fields, "Signature": signature_of(fields, body, secret)}), body)


def test_signed_sends_are_taken(guarded: Twins) -> None:
    before = guarded.taken
    assert guarded.feed(signed() * 5).count(b'"code":0') == 5
    assert guarded.taken - before == 5


@pytest.mark.parametrize(
    "data", [frame(send()), signed(secret="guessed"), signed().replace(b"hello", b"hallo")]
)
def test_others_are_refused(guarded: Twins, data: bytes) -> None:
    before = guarded.taken
    assert b'"code":0' not in guarded.feed(data)
    assert guarded.taken == before
    assert guarded.feed(signed() * 2).count(b'"code":0') == 2


def test_a_topic_without_the_permission_is_refused(guarded: Twins) -> None:
    is_plain = guarded.brokers[0].services.config.acl_enable
    before = guarded.taken
    answer = guarded.feed(signed("Other") * 2)
    # The user of RocketMQ 5 is a Super user.
    assert answer.count(b'"code":0') == (0 if is_plain else 2)
    assert not is_plain or guarded.taken == before


def sequenced(identity: str, sequence: int, key: str = KEY, secret: str = SECRET) -> bytes:
    text = f"UNIQ_KEY\x01{ID}\x02__KOUROU_SEQ\x01{identity}:{sequence}\x02"
    fields = {**ORDINARY, "i": text, "kourouSequenced": "true", "AccessKey": key}
    return frame(send({**fields, "Signature": signature_of(fields, b"hello", secret)}), b"hello")


def test_only_the_account_that_opened_a_producer_sends_as_it(guarded: Twins) -> None:
    """Its messages would be taken for repeats, and be lost."""
    identity = f"{next(_numbers):010x}{owner_digits(KEY)}:0"
    for broker in guarded.brokers:
        opening = ProducerOpening(identity.partition(":")[0], 0, False)
        broker.services.store.producers.table.note_opened(opening, 0)
    other = ("other-key", "secret-of-other")
    assert guarded.feed(sequenced(identity, 0)).count(b'"code":0') == 1
    before = guarded.taken
    if guarded.brokers[0].services.config.acl_enable:
        refused = guarded.feed(sequenced(identity, 1, *other) * 2)
        assert refused.count(b"opened by another account") == 2
        # The other account is known to the kernel now.
        assert guarded.feed(signed(key=other[0], secret=other[1]) * 2).count(b'"code":0') == 2
        assert guarded.feed(sequenced(identity, 1, *other)).count(b"opened by another account") == 1
        before = guarded.taken
    assert guarded.feed(sequenced(identity, 1)).count(b'"code":0') == 1
    assert guarded.feed(sequenced(identity, 2) + sequenced(identity, 3)).count(b'"code":0') == 2
    assert guarded.taken - before >= 2, "by the kernel"


def test_sends_of_a_peer_with_a_certificate_are_left_to_the_rules(guarded: Twins) -> None:
    broker, before = guarded.brokers[0], guarded.taken

    async def sent(broker: FedBroker) -> bytes:
        connection, transport = broker.connect()
        connection.certificate_user = "somebody"
        connection.data_received(signed() * 2)
        broker.services.cycles.close()
        return b"".join(transport.written)

    assert guarded.run(sent(broker)).count(b'"opaque":') == 2
    assert guarded.taken == before
