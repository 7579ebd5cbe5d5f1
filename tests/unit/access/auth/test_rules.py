"""Authentication and authorization, in RocketMQ's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kourou.access.auth import rules as rules_module
from kourou.access.auth.model import User, UserStatus
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.settings import AuthSettings
from kourou.access.model import (
    AccessCall,
    AccessRefusedError,
    Action,
    Need,
    RefusalKind,
    Resource,
    ResourceType,
)
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode, ResponseCode
from tests.unit.access.auth.calls import ALICE, PUB_ORDERS, ROOT, acl, call, data, entry, rules, tables

AUTHENTICATION_ONLY = AuthSettings(is_authorization_enabled=False)


def refusal(checked: AuthRules, request: AccessCall) -> AccessRefusedError:
    with pytest.raises(AccessRefusedError) as caught:
        checked.check(request)
    assert caught.value.response_code == ResponseCode.NO_PERMISSION
    return caught.value


@pytest.mark.parametrize(
    ("user", "kind", "words"),
    [
        (None, RefusalKind.NO_CREDENTIALS, "username cannot be null."),
        (User("", ""), RefusalKind.NO_CREDENTIALS, "username cannot be null."),
        (User("bob", "x"), RefusalKind.UNKNOWN_USER, "User:bob is not found."),
        (User("carol", "c"), RefusalKind.DISABLED_USER, "User:carol is disabled."),
        (User("alice", "wrong"), RefusalKind.WRONG_SIGNATURE, "check signature failed."),
    ],
)
def test_authentication(tmp_path: Path, user: User | None, kind: RefusalKind, words: str) -> None:
    carol = User("carol", "c", status=UserStatus.DISABLE)
    refused = refusal(rules(tmp_path, data(ALICE, carol), AUTHENTICATION_ONLY), call(user))
    assert (refused.kind, str(refused)) == (kind, words)
    assert refused.user == (user.name if user else "")


def test_authenticated_user_may_do_everything_without_authorization(tmp_path: Path) -> None:
    account = rules(tmp_path, data(ALICE), AUTHENTICATION_ONLY).check(call(ALICE, PUB_ORDERS))
    assert account is not None
    assert (account.name, account.is_admin) == ("alice", False)


def test_tampered_field_is_refused(tmp_path: Path) -> None:
    signed = call(ALICE, topic="orders")
    changed = replace(signed, fields={**signed.fields, "topic": "payments"})
    assert refusal(rules(tmp_path, data(ALICE)), changed).kind is RefusalKind.WRONG_SIGNATURE


def test_authorization_names_user_resource_and_address(tmp_path: Path) -> None:
    checked = rules(
        tmp_path, data(ALICE, acls=(acl(entry("Topic:orders", "Sub"), entry("Group:g", "All", "Deny")),))
    )
    assert str(refusal(checked, call(ALICE, PUB_ORDERS))) == (
        "User:alice has no permission to access Topic:orders from 10.0.0.1, no matched policies."
    )
    group = Need(Resource(ResourceType.GROUP, "g"), frozenset({Action.SUB}))
    assert str(refusal(checked, call(ALICE, group, address="::1"))) == (
        "User:alice has no permission to access Group:g from ::1, the decision is deny."
    )


def test_all_needs_must_be_met(tmp_path: Path) -> None:
    sub = frozenset({Action.SUB})
    topic, group = Need(Resource(ResourceType.TOPIC, "t"), sub), Need(Resource(ResourceType.GROUP, "g"), sub)
    checked = rules(tmp_path, data(ALICE, acls=(acl(entry("Topic:t", "Sub,Get")),)))
    assert checked.check(call(ALICE, topic)) is not None
    assert "Group:g" in str(refusal(checked, call(ALICE, topic, group)))


def test_entry_is_limited_to_addresses(tmp_path: Path) -> None:
    checked = rules(tmp_path, data(ALICE, acls=(acl(entry("Topic:orders", "Pub", "Allow", "10.0.0.0/8")),)))
    assert checked.check(call(ALICE, PUB_ORDERS, address="10.1.1.1")) is not None
    refusal(checked, call(ALICE, PUB_ORDERS, address="11.1.1.1"))


def test_super_user_may_do_everything(tmp_path: Path) -> None:
    account = rules(tmp_path, data(ROOT)).check(call(ROOT, PUB_ORDERS, is_admin_only=True))
    assert account is not None and account.is_admin


@pytest.mark.parametrize("settings", [AuthSettings(), AUTHENTICATION_ONLY])
def test_only_super_users_may_do_what_is_for_administrators(tmp_path: Path, settings: AuthSettings) -> None:
    checked = rules(tmp_path, data(ALICE, acls=(acl(entry("*", "All")),)), settings)
    refused = refusal(checked, call(ALICE, code=777, is_admin_only=True))
    assert str(refused) == (
        "User:alice has no permission for request code 777 from 10.0.0.1, only super users have."
    )


def test_changes_act_at_once(tmp_path: Path) -> None:
    known = tables(tmp_path, data(ALICE))
    checked = AuthRules(AuthSettings(), known)
    refusal(checked, call(ALICE, PUB_ORDERS))
    known.adopt(known.current.with_acl(acl(entry("Topic:orders", "Pub"))))
    assert checked.check(call(ALICE, PUB_ORDERS)) is not None
    known.adopt(known.current.without_acl("alice"))
    refusal(checked, call(ALICE, PUB_ORDERS))
    known.adopt(known.current.with_user(replace(ALICE, password="new")))
    assert refusal(checked, call(ALICE)).kind is RefusalKind.WRONG_SIGNATURE


def test_remembered_decisions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "MAX_DECISIONS", 10)
    checked = rules(tmp_path, data(ALICE, acls=(acl(entry("Topic:t*", "Pub")),)))
    for number in range(30):
        need = Need(Resource(ResourceType.TOPIC, f"t{number}"), frozenset({Action.PUB}))
        assert checked.check(call(ALICE, need)) is not None
    assert len(checked._decisions) == 10


class TestWhitelists:
    CODE = RequestCode.GET_MAX_OFFSET

    def test_code_without_authentication(self, tmp_path: Path) -> None:
        settings = AuthSettings(
            is_authorization_enabled=False, authentication_whitelist=frozenset({self.CODE})
        )
        checked = rules(tmp_path, data(ALICE), settings)
        assert checked.check(call(None, PUB_ORDERS, code=self.CODE)) is None
        refusal(checked, call(None, PUB_ORDERS))
        assert "only super" in str(refusal(checked, call(ALICE, code=self.CODE, is_admin_only=True)))

    def test_no_user_is_believed_where_permissions_count(self, tmp_path: Path) -> None:
        checked = rules(tmp_path, data(ROOT), AuthSettings(authentication_whitelist=frozenset({self.CODE})))
        liar = User("root", "wrong")
        assert refusal(checked, call(liar, PUB_ORDERS, code=self.CODE)).kind is RefusalKind.WRONG_SIGNATURE
        assert checked.check(call(liar, code=self.CODE)) is None

    def test_code_without_authorization(self, tmp_path: Path) -> None:
        checked = rules(tmp_path, data(ALICE), AuthSettings(authorization_whitelist=frozenset({self.CODE})))
        assert checked.check(call(ALICE, PUB_ORDERS, code=self.CODE)) is not None
        refusal(checked, call(None, PUB_ORDERS, code=self.CODE))
        refusal(checked, call(ALICE, PUB_ORDERS))

    def test_code_without_both(self, tmp_path: Path) -> None:
        both = frozenset({int(self.CODE)})
        settings = AuthSettings(authentication_whitelist=both, authorization_whitelist=both)
        assert rules(tmp_path, data(), settings).check(call(None, PUB_ORDERS, code=self.CODE)) is None


class TestCertificates:
    def test_user_of_the_certificate_needs_no_signature(self, tmp_path: Path) -> None:
        account = rules(tmp_path, data(ALICE)).check(call(None, certificate_user="alice"))
        assert account is not None and account.name == "alice"

    def test_permissions_are_those_of_the_user(self, tmp_path: Path) -> None:
        refusal(rules(tmp_path, data(ALICE)), call(None, PUB_ORDERS, certificate_user="alice"))

    def test_user_must_be_known(self, tmp_path: Path) -> None:
        refused = refusal(rules(tmp_path, data(ALICE)), call(None, certificate_user="bob"))
        assert refused.kind is RefusalKind.UNKNOWN_USER

    def test_access_key_must_be_the_same(self, tmp_path: Path) -> None:
        checked = rules(tmp_path, data(ALICE, ROOT))
        refusal(checked, call(ROOT, certificate_user="alice"))
        assert checked.check(call(ALICE, certificate_user="alice")) is not None


class TestSender:
    def test_may_send_from_everywhere(self, tmp_path: Path) -> None:
        known = tables(tmp_path, data(ALICE, acls=(acl(entry("Topic:orders", "Pub")),)))
        checked = AuthRules(AuthSettings(), known)
        account = checked.sender("alice", "orders")
        assert account is not None and account.secret_key == ALICE.password
        assert checked.sender("alice", "payments") is None
        assert checked.sender("bob", "orders") is None
        known.adopt(known.current.with_user(replace(ALICE, status=UserStatus.DISABLE)))
        assert checked.sender("alice", "orders") is None

    def test_limits_to_addresses_need_a_look(self, tmp_path: Path) -> None:
        checked = rules(
            tmp_path,
            data(ALICE, acls=(acl(entry("Topic:orders", "Pub", "Deny", "10.0.0.1"), entry("*", "Pub")),)),
        )
        assert checked.sender("alice", "orders") is None
        assert checked.sender("alice", "payments") is not None

    def test_retry_topics_stand_for_groups(self, tmp_path: Path) -> None:
        assert rules(tmp_path, data(ROOT)).sender("root", "%RETRY%g") is None

    def test_without_authorization(self, tmp_path: Path) -> None:
        assert rules(tmp_path, data(ALICE), AUTHENTICATION_ONLY).sender("alice", "orders") is not None


def test_authorization_needs_authentication() -> None:
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs"):
        AuthSettings(is_authentication_enabled=False)
