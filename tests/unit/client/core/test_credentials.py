"""Signatures: the known example, those that Apache's mqadmin made, and what they cover."""

from __future__ import annotations

import pytest

from kourou.client.core.credentials import Credentials
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from tests.golden.frames import VERSIONS, recorded_frames

# The pair in the sample tools.yml of Apache's distribution, which its mqadmin signs with.
APACHE_SAMPLE = Credentials("rocketmq2", "12345678")


def signed_by_apache(version: str) -> list[RemotingCommand]:
    commands = []
    for recorded in recorded_frames(version):
        if (
            recorded.who == "mqadmin"
            and recorded.type == "request"
            and "Signature" in (recorded.header.get("extFields") or {})
        ):
            commands += [decode_command(frame) for frame in FrameDecoder().feed(recorded.frame)]
    return commands


def test_the_known_example() -> None:
    fields = {"topic": "T", "queueId": "0"}
    Credentials("ak", "sk").sign(fields, b"body")
    assert fields == {
        "topic": "T",
        "queueId": "0",
        "AccessKey": "ak",
        "Signature": "Hgg5qvd+x4pcTBBxFgXCwTBfD5I=",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_signatures_are_apaches(version: str) -> None:
    commands = signed_by_apache(version)
    assert len(commands) > 50
    for command in commands:
        ours = dict(command.ext_fields or {})
        assert ours.pop("Signature") and ours.pop("AccessKey")
        APACHE_SAMPLE.sign(ours, command.body)
        assert ours == command.ext_fields


def test_signing_again_gives_the_same_as_signing_once() -> None:
    once = {"b": "1", "a": "2"}
    APACHE_SAMPLE.sign(once, b"x")
    twice = dict(once)
    APACHE_SAMPLE.sign(twice, b"x")
    assert twice == once
    Credentials("other", "secret", "token").sign(twice, b"x")
    Credentials("rocketmq2", "12345678").sign(twice, b"x")
    assert twice == once


def test_the_token_is_sent_and_covered() -> None:
    fields = {"a": "1"}
    Credentials("ak", "sk", "token").sign(fields)
    without = {"a": "1"}
    Credentials("ak", "sk").sign(without)
    assert fields["SecurityToken"] == "token"
    assert fields["Signature"] != without["Signature"]


def test_bodies_of_any_kind_of_bytes() -> None:
    signatures = set()
    for body in (b"body", bytearray(b"body"), memoryview(b"body")):
        fields = {"topic": "主题"}
        APACHE_SAMPLE.sign(fields, body)
        signatures.add(fields["Signature"])
    assert len(signatures) == 1


def test_secrets_are_never_printed() -> None:
    shown = repr(Credentials("ak", "very-secret", "token-secret"))
    assert shown == "Credentials(access_key='ak')"


@pytest.mark.parametrize(("access_key", "secret_key"), [("", "sk"), ("ak", "")])
def test_empty_keys_are_refused(access_key: str, secret_key: str) -> None:
    with pytest.raises(ValueError, match="both needed"):
        Credentials(access_key, secret_key)
