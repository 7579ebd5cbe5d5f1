"""Changes of the files of accounts, as RocketMQ's admin requests make them.

Each is checked as a whole before anything is written: a change that would make a file unusable is refused.
A file is replaced in one step, with the old content beside it as `.bak`; only its owner can read it. The
counter of its dataVersion goes up. Comments are lost. Not here: which table is in force (rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou.access.plain.accounts_file import (
    ACCOUNTS_KEY,
    MIN_KEY_LENGTH,
    VERSION_KEY,
    WHITE_KEY,
    AccountFiles,
    checked_file,
    read_document,
)
from kourou.access.plain.documents import Document, format_document
from kourou.access.plain.permissions import check_grants
from kourou.access.private_file import PrivateFile
from kourou.errors import ConfigError

_MASKED: Final = "***"


class NoSuchAccountError(ConfigError):
    """There is no account with this access key."""

    def __init__(self, access_key: str) -> None:
        super().__init__(f"there is no account {access_key}")


class NoSuchAccountsFileError(ConfigError):
    """No file of accounts has this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """An account to create, or what changes in one. What is None stays as it is."""

    access_key: str | None
    """None is refused, as is a missing secret key: in RocketMQ's words."""
    secret_key: str | None = field(repr=False)
    white_remote_address: str | None = None
    is_admin: bool = False
    """Never stays as it is: this is how RocketMQ does it."""
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    group_perms: Sequence[str] | None = None

    def values(self) -> dict[str, Any]:
        """What is written, by the file's keys."""
        changed: dict[str, Any] = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "whiteRemoteAddress": self.white_remote_address,
            "admin": "true" if self.is_admin else "false",
            "defaultTopicPerm": self.default_topic_perm or None,
            "defaultGroupPerm": self.default_group_perm or None,
            "topicPerms": None if self.topic_perms is None else list(self.topic_perms),
            "groupPerms": None if self.group_perms is None else list(self.group_perms),
        }
        return {key: value for key, value in changed.items() if value is not None}


class AccountEditor:
    """Changes the files; `now_ms` is for their dataVersion. All methods raise ConfigError, and then nothing
    has changed; on return the change is on disk."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def put(self, files: AccountFiles, change: AccountChange) -> None:
        """Create an account, in the default file, or change it in its own."""
        access_key = _checked(change)
        found = files.load().accounts.get(access_key)
        path = files.default if found is None else found.file
        document = _document(path)
        accounts = _list(document, ACCOUNTS_KEY)
        number = _number_of(access_key, accounts)
        before = {} if number is None else accounts.pop(number)
        accounts.append({**before, **change.values()})
        self._write(files, path, document)

    def delete(self, files: AccountFiles, access_key: str) -> None:
        """Delete an account from its file. NoSuchAccountError."""
        found = files.load().accounts.get(access_key)
        document = _document(found.file) if found is not None else {}
        accounts = _list(document, ACCOUNTS_KEY)
        number = _number_of(access_key, accounts)
        if found is None or number is None:
            raise NoSuchAccountError(access_key)
        del accounts[number]
        self._write(files, found.file, document)

    def set_white(self, files: AccountFiles, addresses: Sequence[str], file: str | None = None) -> None:
        """Replace the white list of a file, the default one if none is named. NoSuchAccountsFileError for any
        file but those with accounts."""
        path = _named(files, file) if file else files.default
        document = _document(path)
        document[WHITE_KEY] = list(addresses)
        self._write(files, path, document)

    def _write(self, files: AccountFiles, path: Path, document: Document) -> None:
        version = checked_file(path, document).version
        timestamp = max(self._now_ms(), version.timestamp)
        document[VERSION_KEY] = [{"counter": version.counter + 1, "timestamp": timestamp}]
        files.load({path: document})
        try:
            PrivateFile(path.resolve()).write(format_document(_with_truths(document)).encode())
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error


def _checked(change: AccountChange) -> str:
    """The access key of a change. ConfigError, in RocketMQ's words but without the secret."""
    key, secret = change.access_key or "", change.secret_key or ""
    if min(len(key), len(secret)) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"The accessKey={key or 'null'} and secretKey={_MASKED if secret else 'null'} cannot be null and "
            f"length should longer than {MIN_KEY_LENGTH - 1}"
        )
    check_grants(change.topic_perms or ())
    check_grants(change.group_perms or ())
    return key


def _document(path: Path) -> Document:
    try:
        return read_document(path)
    except FileNotFoundError:
        return {}


def _list(document: Document, key: str) -> list[Document]:
    """The list of a document, made if there is none. The file was checked: it is no other value."""
    entries: list[Document] = document.get(key) or []
    document[key] = entries
    return entries


def _number_of(access_key: str, accounts: list[Document]) -> int | None:
    """The place of the account that counts: the first of this name."""
    return next((i for i, raw in enumerate(accounts) if raw.get("accessKey") == access_key), None)


def _named(files: AccountFiles, file: str) -> Path:
    """One of the files, by its full path. A path that leads out of their folders is none of them."""
    path = Path(file)
    if path not in files.paths():
        raise NoSuchAccountsFileError(
            f"{file} is not one of the files of accounts below {files.default.parent}"
        )
    return path


def _with_truths(document: Document) -> Document:
    """With `admin: true` instead of `admin: 'true'`, for readers that want no text there."""
    accounts: list[Document] = document.get(ACCOUNTS_KEY) or []
    return {**document, ACCOUNTS_KEY: [_with_truth(raw) for raw in accounts]} if accounts else document


def _with_truth(raw: Document) -> Document:
    word = raw.get("admin")
    return {**raw, "admin": word == "true"} if word in ("true", "false") else raw
