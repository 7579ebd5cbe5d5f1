"""Changes of plain_acl.yml: what is written, what stays, what is refused."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from kourou.access.model import Action
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.edits import (
    AccountChange,
    AccountEditor,
    NoSuchAccountError,
    NoSuchAccountsFileError,
)
from kourou.errors import ConfigError
from tests.unit.access.plain.accounts_kit import ACCOUNTS, SECRET, home_files, rules_of, write

NOW_MS = 1_700_000_000_000
EDITOR = AccountEditor(lambda: NOW_MS)


def change(access_key: str = "producer", **values: Any) -> AccountChange:
    return AccountChange(**{"access_key": access_key, "secret_key": "87654321", **values})


def on_disk(path: Path) -> Any:
    """A file as other programs read it."""
    return yaml.safe_load(path.read_text())


@pytest.fixture
def files(tmp_path: Path) -> AccountFiles:
    return home_files(tmp_path, other="accounts: [{accessKey: elsewhere, secretKey: 12345678, admin: true}]")


def test_a_new_account_goes_to_the_default_file(files: AccountFiles) -> None:
    EDITOR.put(
        files,
        change(
            "newcomer",
            is_admin=True,
            default_topic_perm="PUB",
            topic_perms=["a=SUB"],
            white_remote_address="1.2.3.4",
        ),
    )
    written = on_disk(files.default)
    assert [raw["accessKey"] for raw in written["accounts"]][-1] == "newcomer"
    assert written["accounts"][-1] == {
        "accessKey": "newcomer",
        "secretKey": "87654321",
        "whiteRemoteAddress": "1.2.3.4",
        "admin": True,
        "defaultTopicPerm": "PUB",
        "topicPerms": ["a=SUB"],
    }
    assert written["globalWhiteRemoteAddresses"] == ["10.10.103.*"]
    assert written["dataVersion"] == [{"counter": 1, "timestamp": NOW_MS}]
    account = files.load().accounts["newcomer"]
    assert account.is_admin and account.listed == {"a": {Action.SUB}}


def test_there_need_not_be_a_file(tmp_path: Path) -> None:
    files = AccountFiles.of_home(tmp_path)
    EDITOR.put(files, change())
    assert files.load().accounts["producer"].secret_key == "87654321"


def test_what_is_not_given_stays_except_admin(files: AccountFiles) -> None:
    EDITOR.put(files, change(default_group_perm="", group_perms=["b=SUB"]))
    written = on_disk(files.default)["accounts"][-1]
    assert written == {
        "accessKey": "producer",
        "secretKey": "87654321",
        "whiteRemoteAddress": "10.0.0.7",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["orders=PUB|SUB", "bills=SUB"],
        "groupPerms": ["b=SUB"],
    }
    EDITOR.put(files, change("everything"))
    assert not files.load().accounts["everything"].is_admin


def test_an_account_is_changed_in_its_own_file(files: AccountFiles) -> None:
    before = files.default.read_text()
    EDITOR.put(files, change("elsewhere", white_remote_address=""))
    other = files.folder / "other.yml"
    assert on_disk(other)["accounts"] == [
        {"accessKey": "elsewhere", "secretKey": "87654321", "admin": False, "whiteRemoteAddress": ""}
    ]
    assert files.default.read_text() == before


def test_the_counter_goes_up_and_the_time_not_back(files: AccountFiles) -> None:
    later = NOW_MS + 5
    write(files.default, f"{ACCOUNTS}dataVersion: [{{counter: 41, timestamp: {later}}}]")
    EDITOR.put(files, change())
    assert on_disk(files.default)["dataVersion"] == [{"counter": 42, "timestamp": later}]


def test_texts_that_look_like_numbers_stay_texts(tmp_path: Path) -> None:
    files = home_files(tmp_path, "accounts: [{accessKey: 01234567, secretKey: 0x123456}]\nmore: 010\n")
    EDITOR.put(files, change())
    assert files.load().accounts["01234567"].secret_key == "0x123456"
    assert on_disk(files.default)["accounts"][0]["accessKey"] == "01234567"
    assert on_disk(files.default)["more"] == "010"


def test_only_the_owner_can_read_what_is_written(files: AccountFiles) -> None:
    files.default.chmod(0o644)
    EDITOR.put(files, change())
    assert stat.S_IMODE(files.default.stat().st_mode) == 0o600


def test_a_link_stays_a_link(files: AccountFiles, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.yml"
    files.default.rename(target)
    files.default.symlink_to(target)
    EDITOR.put(files, change("newcomer"))
    assert files.default.is_symlink()
    assert "newcomer" in files.load().accounts


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"access_key": "short"},
            "The accessKey=short and secretKey=*** cannot be null and length should longer than 6",
        ),
        (
            {"secret_key": "hidden"},
            "The accessKey=producer and secretKey=*** cannot be null and length should longer than 6",
        ),
        (
            {"topic_perms": ["orders"]},
            "Parse Resource format error for orders.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            {"group_perms": ["g=PUSH"]},
            "Parse resource permission error for g=PUSH.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
        ),
        ({"topic_perms": [""]}, "Parse Resource format error for .\n"),
        ({"white_remote_address": "10.*"}, "account producer, whiteRemoteAddress: address pattern '10.*'"),
    ],
)
def test_refused_changes_leave_the_file(files: AccountFiles, values: dict[str, Any], words: str) -> None:
    before = files.default.read_text()
    with pytest.raises(ConfigError) as caught:
        EDITOR.put(files, change(**values))
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert files.default.read_text() == before


def test_denied_permissions_can_be_given(files: AccountFiles) -> None:
    EDITOR.put(files, change(topic_perms=["orders=DENY"]))
    assert files.load().accounts["producer"].listed["orders"] == frozenset()


def test_nothing_is_written_while_another_file_is_broken(files: AccountFiles) -> None:
    write(files.folder / "other.yml", "[")
    before = files.default.read_text()
    with pytest.raises(ConfigError, match=r"other\.yml"):
        EDITOR.put(files, change())
    assert files.default.read_text() == before


def test_a_file_that_cannot_be_written(files: AccountFiles) -> None:
    before = files.default.read_text()
    files.default.with_name("plain_acl.yml.tmp").mkdir()
    with pytest.raises(ConfigError, match=r"plain_acl\.yml cannot be written"):
        EDITOR.put(files, change())
    assert files.default.read_text() == before


def test_delete(files: AccountFiles) -> None:
    EDITOR.delete(files, "producer")
    assert "producer" not in files.load().accounts
    assert on_disk(files.default)["dataVersion"][0]["counter"] == 1
    EDITOR.delete(files, "elsewhere")
    assert on_disk(files.folder / "other.yml")["accounts"] == []
    with pytest.raises(NoSuchAccountError):
        EDITOR.delete(files, "producer")


def test_exempt_addresses(files: AccountFiles) -> None:
    EDITOR.set_white(files, ["1.2.3.4", "10.0.0.{1,2}"])
    other = files.folder / "other.yml"
    EDITOR.set_white(files, ["::1"], str(other))
    assert on_disk(files.default)["globalWhiteRemoteAddresses"] == ["1.2.3.4", "10.0.0.{1,2}"]
    assert on_disk(other)["globalWhiteRemoteAddresses"] == ["::1"]
    assert len(files.load().accounts) == 4
    EDITOR.set_white(files, [""])
    assert not files.load().is_exempt((1, 2, 3, 4))


@pytest.mark.parametrize(
    "name", ["conf/tools.yml", "conf/acl", "conf/acl/none.yml", "conf/acl/../plain_acl.yml", "../x.yml"]
)
def test_only_files_of_accounts_get_exempt_addresses(files: AccountFiles, tmp_path: Path, name: str) -> None:
    write(tmp_path / "conf" / "tools.yml", "accessKey: tools\n")
    with pytest.raises(NoSuchAccountsFileError):
        EDITOR.set_white(files, ["*"], f"{tmp_path}/{name}")
    assert (tmp_path / "conf" / "tools.yml").read_text() == "accessKey: tools\n"


def test_bad_addresses_are_refused(files: AccountFiles) -> None:
    with pytest.raises(ConfigError, match="address pattern"):
        EDITOR.set_white(files, ["10.0.0.0/8"])


def test_rules_follow_an_edit_at_once(files: AccountFiles) -> None:
    rules = rules_of(files)
    rules.edit(lambda files: EDITOR.put(files, change("newcomer")))
    assert "newcomer" in rules.table.accounts
    assert not rules.reload_if_changed()
    table = rules.table
    with pytest.raises(NoSuchAccountError):
        rules.edit(lambda files: EDITOR.delete(files, "nobody"))
    assert rules.table is table
    assert SECRET not in repr(change(secret_key=SECRET))
