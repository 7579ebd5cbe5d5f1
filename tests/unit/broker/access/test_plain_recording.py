"""The admin requests of accounts are answered as Apache 4.9.7 did, step by step."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.protocol.command import RemotingCommand
from tests.interop.kit.access_accounts import plain_acl_yml
from tests.interop.kit.access_administration import Step, steps
from tests.interop.kit.access_servers import PLAIN
from tests.unit.access.plain.accounts_kit import home_files, rules_of
from tests.unit.broker.access.test_plain_processor import AclBroker

_RECORDED: Final = Path(__file__).parents[3] / "golden" / "access-4.9.7.json"
_SECRETS: Final = re.compile(r"secretKey=(?!null)\w+")

STRICTER: Final = {
    "white broken": (
        211,
        "/conf/plain_acl.yml: globalWhiteRemoteAddresses: address pattern '10.10.10': "
        "'10.10.10' is not an IP address",
    ),
}
"""What Apache writes although its file cannot be loaded then (docs/compatibility.md)."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AclBroker]:
    broker = AclBroker(tmp_path)
    broker.rules = rules_of(home_files(tmp_path / "recorded", plain_acl_yml()))
    broker.reopen()
    yield broker
    await broker.close()


async def test_every_step_of_the_recording(broker: AclBroker, tmp_path: Path) -> None:
    recorded: dict[str, list[Any]] = json.loads(_RECORDED.read_bytes())["administration"]
    asked = steps(PLAIN)
    assert len(asked) == len(recorded) > 25
    differences = {}
    for step in asked:
        response = await answer(broker, step)
        remark = (response.remark or "").splitlines()[:1]
        body = json.loads(response.body) if response.body else None
        found = response.code, "".join(remark).replace(str(tmp_path / "recorded"), ""), body
        code, words, content, *_ = recorded[step.name]
        expected = code, _SECRETS.sub("secretKey=***", words or ""), content
        if step.name in STRICTER:
            assert code == 0
            expected = *STRICTER[step.name], None
        if found != expected:
            differences[step.name] = found
    assert differences == {}


async def test_versions_of_the_recording(broker: AclBroker, tmp_path: Path) -> None:
    recorded = json.loads(_RECORDED.read_bytes())["administration"]["versions"][3]
    by_name = {step.name: step for step in steps(PLAIN)}
    await answer(broker, by_name["create"])
    fields = (await answer(broker, by_name["versions"])).ext_fields
    assert fields.keys() == recorded.keys()
    path = str(broker.rules.files.default)
    assert json.loads(fields["allAclFileVersion"])[path].keys() == json.loads(recorded["version"]).keys()
    assert json.loads(fields["version"]) == json.loads(fields["allAclFileVersion"])[path]
    assert fields["brokerAddr"] == recorded["brokerAddr"]


async def answer(broker: AclBroker, step: Step) -> RemotingCommand:
    (response,) = await broker.connect().send(RemotingCommand(step.code, ext_fields=dict(step.fields)))
    return response
