"""What is read from plain_acl.yml and the folder acl, and what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kourou.access.model import Action
from kourou.access.plain.accounts import AccountTable, PlainAccount
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.documents import MAX_BYTES, _yaml, format_document, parse_document
from kourou.errors import ConfigError
from tests.unit.access.plain.accounts_kit import ACCOUNTS, home_files, write


def table_of(home: Path, text: str, **others: str) -> AccountTable:
    return home_files(home, text, **others).load()


def account(home: Path, lines: str) -> PlainAccount:
    """The account with these lines after its keys."""
    text = f"accounts:\n- accessKey: account-1\n  secretKey: 12345678\n{lines}"
    return table_of(home, text).accounts["account-1"]


def problems(home: Path, text: str, **others: str) -> list[str]:
    """What is wrong, without the home folder."""
    with pytest.raises(ConfigError) as caught:
        table_of(home, text, **others)
    return [problem.replace(f"{home}/conf/", "") for problem in caught.value.problems]


def test_an_account(tmp_path: Path) -> None:
    table = table_of(tmp_path, ACCOUNTS)
    producer = table.accounts["producer"]
    assert producer.default_topic == frozenset()
    assert producer.default_group == {Action.SUB}
    assert producer.listed == {
        "orders": {Action.PUB, Action.SUB},
        "bills": {Action.SUB},
        "%RETRY%closed": frozenset(),
    }
    assert not producer.is_admin
    assert table.accounts["everything"].is_admin
    assert table.notes == ()


@pytest.mark.parametrize(
    "secret", ["12345678", "01234567", "1234567.0", "0x1234567", "2024-01-01", "'1234567'"]
)
def test_a_secret_is_the_text_that_was_written(tmp_path: Path, secret: str) -> None:
    table = table_of(tmp_path, f"accounts:\n- accessKey: 87654321\n  secretKey: {secret}\n")
    assert table.accounts["87654321"].secret_key == secret.strip("'")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("PUB", {Action.PUB}),
        ("SUB", {Action.SUB}),
        ("PUB|SUB", {Action.PUB, Action.SUB}),
        ("SUB|PUB", {Action.PUB, Action.SUB}),
        ("DENY", set()),
        ("ANY", set()),
        ("pub", set()),
        ("", set()),
        ("null", set()),
    ],
)
def test_permissions(tmp_path: Path, word: str, expected: set[Action]) -> None:
    assert account(tmp_path, f"  defaultTopicPerm: {word}\n").default_topic == expected


def test_unknown_permission_denies_with_a_note(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, "accounts: [{accessKey: account-1, secretKey: 12345678, topicPerms: [orders=PUSH]}]"
    )
    assert table.accounts["account-1"].listed == {"orders": frozenset()}
    assert "account account-1, topicPerms, orders: 'PUSH' is no permission and denies" in table.notes[0]


@pytest.mark.parametrize("word", ["true", "True", "yes", "on", "1", "'true'"])
def test_admin(tmp_path: Path, word: str) -> None:
    assert account(tmp_path, f"  admin: {word}\n").is_admin


@pytest.mark.parametrize("word", ["false", "no", "", "~", "0"])
def test_no_admin(tmp_path: Path, word: str) -> None:
    assert not account(tmp_path, f"  admin: {word}\n").is_admin


def test_blanks_around_names(tmp_path: Path) -> None:
    assert account(tmp_path, "  topicPerms:\n  - ' a = PUB '\n").listed == {"a": {Action.PUB}}


def test_merged_accounts(tmp_path: Path) -> None:
    text = """\
base: &base {secretKey: 12345678, defaultTopicPerm: PUB}
accounts:
- {<<: *base, accessKey: account-1}
"""
    assert table_of(tmp_path, text).accounts["account-1"].default_topic == {Action.PUB}


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "accounts:\n", "accounts: []\nglobalWhiteRemoteAddresses:\n"]
)
def test_no_accounts(tmp_path: Path, text: str) -> None:
    table = table_of(tmp_path, text)
    assert not table.accounts
    assert not table.white


def test_no_files(tmp_path: Path) -> None:
    files = AccountFiles.of_home(tmp_path)
    assert files.paths() == []
    assert not files.load().accounts


def test_version(tmp_path: Path) -> None:
    (file,) = table_of(tmp_path, "dataVersion:\n- counter: 7\n  timestamp: 1700000000000\n").files
    assert (file.version.counter, file.version.timestamp) == (7, 1700000000000)


# -- several files -----------------------------------------------------------------------------------


def test_white_lists_of_all_files_are_joined(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        ACCOUNTS,
        other="globalWhiteRemoteAddresses: [1.2.3.4]",
        last="globalWhiteRemoteAddresses: ['']",
    )
    assert table.is_exempt((1, 2, 3, 4))
    assert table.is_exempt((10, 10, 103, 1))
    assert not table.is_exempt((1, 2, 3, 5))


def test_an_access_key_in_a_second_place_is_ignored(tmp_path: Path) -> None:
    second = """\
accounts:
- {accessKey: producer, secretKey: 12345678}
- {accessKey: producer, secretKey: 87654321}
"""
    table = table_of(tmp_path, ACCOUNTS, other=second)
    assert table.accounts["producer"].secret_key == "12345678"  # the folder is read first
    assert len(table.notes) == 2
    assert all("accessKey producer is ignored" in note for note in table.notes)


def test_files_of_the_folder(tmp_path: Path) -> None:
    files = home_files(tmp_path, "", b="", a="")
    write(files.folder / "deep" / "er" / "c.yaml", "")
    write(files.folder / "notes.txt", "[")
    write(tmp_path / "conf" / "tools.yml", "[")
    names = [str(path.relative_to(tmp_path / "conf")) for path in files.paths()]
    assert names == ["acl/a.yml", "acl/b.yml", "acl/deep/er/c.yaml", "plain_acl.yml"]


# -- problems ----------------------------------------------------------------------------------------


def test_all_problems_of_all_files_are_reported(tmp_path: Path) -> None:
    first = """\
globalWhiteRemoteAddresses: [192.168.*]
accounts:
- {accessKey: short, secretKey: abc}
- {accessKey: account-2, secretKey: 12345678, admin: maybe, topicPerms: [a, b=c=PUB], whiteRemoteAddress: x}
dataVersion: [{counter: many}]
"""
    assert problems(tmp_path, first, other="accounts: 7") == [
        "acl/other.yml: accounts: must be a list of mappings",
        "plain_acl.yml: globalWhiteRemoteAddresses: address pattern '192.168.*': "
        "an address with a wildcard has four parts, as in 10.0.*.*",
        "plain_acl.yml: account short, accessKey: must be longer than 6 characters",
        "plain_acl.yml: account short, secretKey: must be longer than 6 characters",
        "plain_acl.yml: account account-2, topicPerms: 'a' must be name=PERM, as in orders=PUB|SUB",
        "plain_acl.yml: account account-2, topicPerms: 'b=c=PUB' must be name=PERM, as in orders=PUB|SUB",
        "plain_acl.yml: account account-2, admin: must be true or false",
        "plain_acl.yml: account account-2, whiteRemoteAddress: address pattern 'x': 'x' is not an IP address",
        "plain_acl.yml: dataVersion: counter and timestamp must be numbers",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "plain_acl.yml: must be a mapping with globalWhiteRemoteAddresses and accounts"),
        ("accounts:\n- [", "plain_acl.yml:3: is not valid YAML"),
        ("accounts: !!python/object:os.system {}", "plain_acl.yml:1: is not valid YAML"),
        ("accounts: [text]", "plain_acl.yml: accounts: must be a list of mappings"),
        ("globalWhiteRemoteAddresses: 1.2.3.4", "plain_acl.yml: globalWhiteRemoteAddresses: must be a list"),
        ("accounts: [{}]", "plain_acl.yml: account 1, accessKey: must be longer than 6 characters"),
        ("accounts: [{accessKey: [a]}]", "plain_acl.yml: account 1, accessKey: must be a text"),
        (
            "accounts: [{accessKey: ~}]",
            "plain_acl.yml: account 1, accessKey: must be longer than 6 characters",
        ),
        ("\x00", "plain_acl.yml: is not valid YAML"),
        ("[" * 10_000, "plain_acl.yml"),
    ],
)
def test_problems(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text)[0].startswith(problem)


def test_mistakes_do_not_quote_secrets(tmp_path: Path) -> None:
    text = "accounts:\n- accessKey: account-1\n  secretKey: 'hidden-away\n  admin: true\n"
    assert "hidden" not in str(problems(tmp_path, text))


def test_not_utf8_and_too_large(tmp_path: Path) -> None:
    files = home_files(tmp_path, "")
    files.default.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        files.load()
    with open(files.default, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="this is no file of accounts"):
        files.load()


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    files = AccountFiles.of_home(tmp_path)
    files.default.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml: cannot be read"):
        files.load()


def test_unknown_keys_are_noted(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, "accounts: [{accessKey: account-1, secretKey: 12345678, topicPerm: [a=PUB]}]\naccount: 1\n"
    )
    notes = [note.partition("plain_acl.yml: ")[2] for note in table.notes]
    assert notes == [
        "key account is unknown and ignored; did you mean accounts?",
        "account account-1, key topicPerm is unknown and ignored; did you mean topicPerms?",
    ]


def test_files_that_all_can_read(tmp_path: Path) -> None:
    files = home_files(tmp_path, "", other="")
    assert files.readable_by_others() == []
    files.default.chmod(0o604)
    assert files.readable_by_others() == [files.default]


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = home_files(tmp_path, ACCOUNTS)
    _yaml.cache_clear()
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install 'kourou\[acl\]'"):
        files.load()


def test_a_document_is_written_as_it_was_read() -> None:
    document = parse_document(ACCOUNTS.encode() + "中: 0123\n".encode(), "x")
    text = format_document(document)
    assert parse_document(text.encode(), "x") == document
    assert list(document) == ["globalWhiteRemoteAddresses", "accounts", "中"]
    assert "中: '0123'" in text
