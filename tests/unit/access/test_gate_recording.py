"""What the gate refuses to the users of RocketMQ 5, call by call, is what Apache 5.5.0 refused, in its words.

Differences are listed: where ours is stricter (docs/compatibility.md), which the openings undo but for a few.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from kourou.access.auth.data import AuthData
from kourou.access.auth.infos import acl_of, new_user
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.settings import AuthSettings
from kourou.access.gate import AccessGate
from kourou.access.openings import Opening
from kourou.access.requests import RequestTable
from kourou.errors import KourouError
from kourou.protocol.bodies import AclInfo, UserInfo, decode_body
from kourou.protocol.signature import SigningKeys
from tests.interop.kit.access_accounts import ACCOUNTS, IDENTITIES, Identity, acl_body, user_body
from tests.interop.kit.access_answers import PASSED, Answer
from tests.interop.kit.access_calls import AccessCall, calls
from tests.interop.kit.access_recording import recorded
from tests.interop.kit.access_servers import AUTH
from tests.unit.access.auth.calls import tables

LOOSER: Final = {"route"}
"""Routes are a name server's; a broker of ours has none."""

OTHER_WORDS: Final = {
    *(f"{what} %RETRY%Strangers Workers" for what in ("pull", "query offset", "update offset")),
    "consume directly Workers",
    "consume directly Strangers",
}
"""Refused by both: another group's retry topic, a missing topic."""

ALWAYS_STRICTER: Final = {
    *(
        f"{what} %RETRY%Strangers Workers"
        for what in ("pull", "query offset", "update offset", "lock", "unlock")
    ),
    "consume directly Workers",
    "consume directly Strangers",
    "plain acl versions",
    "plain acl accounts",
    "unknown code",
    "update plain account",
    "delete plain account",
    "update white addresses",
}


@pytest.fixture
def accounts() -> AuthData:
    content = AuthData()
    for account in ACCOUNTS:
        content = content.with_user(new_user(account.access_key, decode_body(user_body(account), UserInfo)))
        if body := acl_body(account):
            content = content.with_acl(acl_of(None, decode_body(body, AclInfo)))
    return content


def answer_of(gate: AccessGate, call: AccessCall, identity: Identity) -> Answer:
    """What the gate says to a call of somebody."""
    fields = dict(call.fields)
    if identity.access_key:
        SigningKeys(identity.access_key, identity.secret_key).sign(fields, call.body)
    request = SimpleNamespace(
        code=call.code,
        body=call.body,
        version=500,
        is_oneway=False,
        ext_fields=fields,
        connection=SimpleNamespace(remote_address="127.0.0.1:40000", certificate_user=None),
    )
    try:
        gate.check(request)
    except KourouError as error:
        return Answer(error.response_code, str(error))
    return PASSED


@pytest.mark.parametrize("openings", [(), tuple(Opening)], ids=["closed", "open"])
def test_every_call_of_the_recording(
    tmp_path: Path, accounts: AuthData, openings: tuple[Opening, ...]
) -> None:
    rules = AuthRules(AuthSettings(), tables(tmp_path, accounts))
    requests = RequestTable(cluster="DefaultCluster", openings=openings)
    gate = AccessGate(rules, requests, monotonic_ms=lambda: 0)
    apache = recorded(AUTH)
    looser: set[str] = set()
    other_words: set[str] = set()
    stricter: set[str] = set()
    for call in calls():
        for identity in IDENTITIES:
            ours, theirs = answer_of(gate, call, identity), apache[call.name][identity.name]
            if ours == theirs:
                continue
            if theirs == PASSED:
                stricter.add(call.name)
            else:
                (looser if ours == PASSED else other_words).add(call.name)
    assert looser == LOOSER
    assert other_words == OTHER_WORDS
    assert stricter == ALWAYS_STRICTER if openings else stricter > ALWAYS_STRICTER
