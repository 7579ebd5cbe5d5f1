"""Accounts of RocketMQ 4 become users and policies."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.access.auth.data import AuthData
from kourou.access.auth.migration import with_accounts
from kourou.access.auth.model import User, UserType
from kourou.access.auth.tables import AuthTables
from kourou.access.plain.accounts_file import AccountFiles
from tests.unit.access.auth.calls import data

FILE = """
globalWhiteRemoteAddresses:
- 10.0.0.1
accounts:
- accessKey: producers
  secretKey: 12345678
  whiteRemoteAddress: 10.0.0.7
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
  - secret=DENY
  - mistyped=PBU
  - wild*=PUB
  groupPerms:
  - payments=SUB
- accessKey: operators
  secretKey: operator-secret
  admin: true
"""


def migrated(tmp_path: Path, before: AuthData) -> AuthData:
    (tmp_path / "conf").mkdir(exist_ok=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(FILE)
    return with_accounts(before, AccountFiles.of_home(tmp_path).load())


def lines(content: AuthData, name: str) -> list[str]:
    return [
        f"{policy.policy_type} {each.resource} {','.join(each.actions or [])} {each.decision}"
        for policy in content.acls[name].info().policies or []
        for each in policy.entries or []
    ]


def test_accounts_become_users(tmp_path: Path) -> None:
    content = migrated(tmp_path, AuthData())
    assert content.users == {
        "producers": User("producers", "12345678"),
        "operators": User("operators", "operator-secret", UserType.SUPER),
    }
    assert sorted(lines(content, "producers")) == [
        "Custom Group:payments Sub Allow",
        "Custom Topic:mistyped All Deny",
        "Custom Topic:orders Pub,Sub Allow",
        "Custom Topic:secret All Deny",
        "Default Group:* Sub Allow",
        "Default Topic:* All Deny",
    ]
    assert lines(content, "operators") == ["Default Topic:* All Deny", "Default Group:* All Deny"]


def test_what_is_dropped_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        migrated(tmp_path, AuthData())
    assert "globalWhiteRemoteAddresses are dropped" in caplog.text
    assert "for topic 'wild*' is dropped" in caplog.text
    assert "12345678" not in caplog.text


def test_users_who_are_there_are_left_alone(tmp_path: Path) -> None:
    before = data(User("producers", "changed"))
    content = migrated(tmp_path, before)
    assert content.users["producers"].password == "changed"
    assert "producers" not in content.acls
    assert migrated(tmp_path, content) is content


def test_migrated_tables_can_be_read_again(tmp_path: Path) -> None:
    tables = AuthTables(tmp_path / "config", lambda: 7)
    tables.replace(migrated(tmp_path, AuthData()))
    again = AuthTables(tmp_path / "config", lambda: 7)
    again.load()
    assert again.current == tables.current
