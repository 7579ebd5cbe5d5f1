"""The accounts of a standalone: made once, kept from others, not in what anybody sees."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.access.inner_keys import inner_keys
from kourou.errors import ConfigError
from kourou.standalone.accounts import StandaloneAccounts, open_accounts
from kourou.standalone.options import (
    Replica,
    StandaloneOptions,
    broker_config,
    broker_overrides,
    namesrv_config,
)


def secrets_of(accounts: StandaloneAccounts) -> tuple[str, str]:
    return accounts.administrator.secret_key, accounts.inner.secret_key


def test_they_are_random_and_made_once(tmp_path: Path) -> None:
    first, another = open_accounts(tmp_path / "a"), open_accounts(tmp_path / "b")
    again = open_accounts(tmp_path / "a")
    assert first.is_new and not again.is_new
    assert replace(first, is_new=False) == again
    assert len({*secrets_of(first), *secrets_of(another)}) == 4
    assert min(map(len, secrets_of(first))) >= 32


def test_only_their_owner_can_read_the_files(tmp_path: Path) -> None:
    accounts = open_accounts(tmp_path)
    for path in (accounts.tools_file, accounts.server_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert accounts.tools_file.read_text() == (
        f"accessKey: {accounts.administrator.access_key}\nsecretKey: {accounts.administrator.secret_key}\n"
    )


def test_servers_get_them_and_nobody_sees_them(tmp_path: Path) -> None:
    accounts = open_accounts(tmp_path / "conf")
    options = StandaloneOptions(store=tmp_path, brokers=2, accounts=accounts)
    namesrv, _ = namesrv_config(options)
    broker, notes = broker_config(options, Replica(1), "127.0.0.1:9876")
    assert namesrv.authentication_enabled
    assert broker.authentication_enabled and broker.authorization_enabled
    assert inner_keys(broker) == inner_keys(namesrv) == accounts.inner
    assert namesrv.access_users_folder == str(tmp_path / "broker-a" / "config")
    # Options of a process are seen by every user of the machine.
    seen = [
        *broker_overrides(options, Replica(1), "127.0.0.1:9876").values(),
        *notes,
        broker.to_properties(),
        namesrv.to_properties(),
        repr((options, broker, namesrv)),
    ]
    assert not [text for text in seen for secret in secrets_of(accounts) if secret in text]


def test_a_damaged_file_is_named_and_its_secrets_are_not(tmp_path: Path) -> None:
    accounts = open_accounts(tmp_path)
    text = accounts.server_file.read_text()
    accounts.server_file.write_text(text.replace('"username"', '"user"'))
    with pytest.raises(ConfigError, match=r"access\.properties: has no valid") as error:
        open_accounts(tmp_path)
    assert not [secret for secret in secrets_of(accounts) if secret in str(error.value)]
