"""What Apache 4.9.7 refused is refused here, in its words; what is refused besides is known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from kourou.access.gate import AccessGate
from kourou.access.model import AccessRefusedError
from kourou.access.openings import Opening
from kourou.access.plain.rules import PlainRules
from kourou.access.requests import RequestTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of
from tests.interop.kit.access_accounts import IDENTITIES, Identity, plain_acl_yml
from tests.interop.kit.access_answers import PASSED, Answer, Answers
from tests.interop.kit.access_calls import AccessCall, calls
from tests.interop.kit.access_recording import recorded
from tests.unit.access.kit import FakeRequest
from tests.unit.access.plain.accounts_kit import home_files, rules_of

_OTHER_GROUP: Final = "send v2 %RETRY%Strangers: nobodyuser"
"""Apache checks the group that the header names, and not the one whose retry topic it is."""
_STRICTER: Final = ("send %RETRY%", "send v2 %RETRY%Strangers", "view ", "consume directly ")
"""Refused although all holes are open: in each a name is left out, or not the one that is used."""
_FIRST_CODE_OF_5: Final = RequestCode.POP_MESSAGE
_CODES_OF_5: Final = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
_UNKNOWN_CODE: Final = 7_777


@pytest.fixture
def rules(tmp_path: Path) -> PlainRules:
    return rules_of(home_files(tmp_path, plain_acl_yml()))


def our_answers(rules: PlainRules, openings: Iterable[Opening]) -> Answers:
    """What our gate says to each call of each identity."""
    requests = RequestTable(cluster="DefaultCluster", openings=openings)
    gate = AccessGate(rules, requests, monotonic_ms=lambda: 0)
    return {
        call.name: {identity.name: answer(gate, signed(identity, call)) for identity in IDENTITIES}
        for call in calls()
    }


def signed(identity: Identity, call: AccessCall) -> FakeRequest:
    fields = dict(call.fields)
    if identity.access_key:
        fields[ACCESS_KEY] = identity.access_key
        fields[SIGNATURE] = signature_of(fields, call.body, identity.secret_key)
    return FakeRequest(call.code, fields, call.body)


def answer(gate: AccessGate, request: FakeRequest) -> Answer:
    try:
        gate.check(request)
    except AccessRefusedError as error:
        return Answer(error.response_code, re.sub(r"\.java:\d+", ".java", error.remark))
    return PASSED


def differences(ours: Answers, apache: Answers) -> dict[str, tuple[Answer, Answer]]:
    return {
        f"{call}: {name}": (ours[call][name], theirs)
        for call, by_identity in apache.items()
        for name, theirs in by_identity.items()
        if ours[call][name] != theirs
    }


def test_what_apache_refuses_is_refused_in_its_words(rules: PlainRules) -> None:
    more = differences(our_answers(rules, []), recorded("4.9.7"))
    ours, theirs = more.pop(_OTHER_GROUP)
    assert "group:Strangers" in (ours.remark or "") and "group:Workers" in (theirs.remark or "")
    assert len(more) > 50
    assert {theirs for _, theirs in more.values()} == {PASSED}


def test_nothing_else_that_it_knows_is_refused_where_all_holes_are_open(rules: PlainRules) -> None:
    codes = {call.name: call.code for call in calls()}
    more = differences(our_answers(rules, list(Opening)), recorded("4.9.7"))
    of_4 = {
        name
        for name in more
        if (code := codes[name.rpartition(": ")[0]]) < _FIRST_CODE_OF_5
        and code not in _CODES_OF_5
        and code != _UNKNOWN_CODE
    }
    assert sorted(name for name in of_4 if not name.startswith(_STRICTER)) == []
