"""The admin requests of users and policies are answered as Apache 5.5.0 did, step by step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.access.auth.data import AuthData
from kourou.access.auth.infos import acl_of, new_user
from kourou.protocol.bodies import AclInfo, UserInfo, decode_body
from kourou.protocol.command import RemotingCommand
from tests.interop.kit.access_accounts import ACCOUNTS, ADMIN, acl_body, user_body
from tests.interop.kit.access_administration import Step, steps
from tests.interop.kit.access_servers import AUTH
from tests.unit.broker.access.test_auth_processor import AuthBroker

_RECORDED: Final = Path(__file__).parents[3] / "golden" / "access-5.5.0.json"

STRICTER: Final = {
    "create user of unknown type": (29, "The userType is illegal; it must be one of Super, Normal."),
    "create user of unknown status": (29, "The userStatus is illegal; it must be one of enable, disable."),
    "create acl with empty name": (16, "The resource is null."),
    "create acl with some unknown action": (16, "The actions are not all known: Fly."),
    "create acl of unknown policy type": (
        29,
        "The policyType is illegal; it must be one of Custom, Default.",
    ),
}
"""What Apache accepts, and drops in silence (docs/compatibility.md)."""
_LEFT_OUT: Final = {"Topic:", "Topic:D"}
_NOT_CREATED: Final = {"typed", "stated"}
# An exception's class and place come with these.
_WORDS_DIFFER: Final = 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AuthBroker]:
    broker = AuthBroker(tmp_path)
    content = AuthData()
    for account in ACCOUNTS:
        content = content.with_user(new_user(account.access_key, decode_body(user_body(account), UserInfo)))
        if body := acl_body(account):
            content = content.with_acl(acl_of(None, decode_body(body, AclInfo)))
    broker.auth_tables.adopt(content)
    yield broker
    await broker.close()


async def test_every_step_of_the_recording(broker: AuthBroker) -> None:
    recorded: dict[str, list[Any]] = json.loads(_RECORDED.read_bytes())["administration"]
    differences = {}
    asked = [step for step in steps(AUTH) if step.identity == ADMIN.identity]
    assert len(asked) > 80
    for step in asked:
        code, remark, body = await answer(broker, step)
        expected_code, expected_remark, expected_body = recorded[step.name]
        if step.name in STRICTER:
            assert expected_code == 0
            expected_code, expected_remark = STRICTER[step.name]
        if code in (0, _WORDS_DIFFER):
            remark = expected_remark
        if (code, remark, body) != (expected_code, expected_remark, without_what_is_refused(expected_body)):
            differences[step.name] = (code, remark, body)
    assert differences == {}


async def answer(broker: AuthBroker, step: Step) -> tuple[int, str | None, Any]:
    """Code, remark and body of a step."""
    body = b"" if step.body is None else json.dumps(step.body).encode()
    command = RemotingCommand(step.code, ext_fields=dict(step.fields), body=body)
    (response,) = await broker.connect().send(command)
    return response.code, response.remark, json.loads(response.body) if response.body else None


def without_what_is_refused(body: Any) -> Any:
    """A recorded body without what ours has refused to make, or to read from the header alone."""
    if isinstance(body, list):
        return [
            without_what_is_refused(one) for one in body if one.get("username") not in _NOT_CREATED
        ] or None
    if isinstance(body, dict):
        if body.get("username") in _NOT_CREATED:
            return None
        for policy in body.get("policies", ()):
            policy["entries"] = [
                entry for entry in policy["entries"] if entry["resource"] not in _LEFT_OUT | {"Topic:E"}
            ]
    return body
