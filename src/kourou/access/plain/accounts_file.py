"""plain_acl.yml and the folder acl: where the files are, what is in them, whether they changed.

    globalWhiteRemoteAddresses:      # no account is needed from there
    - 10.10.103.*
    accounts:
    - accessKey: producers           # like the secret key, longer than 6 characters
      secretKey: 12345678
      whiteRemoteAddress: 10.0.0.7   # from there, no signature is needed
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - orders=PUB|SUB
      groupPerms:
      - payments=DENY
    dataVersion:                     # written by the admin requests
    - counter: 1
      timestamp: 1700000000000

Files are read whole and checked completely: all problems of all files are reported together. Not here: which
table is in force (rules.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kourou.access.plain.accounts import AccountsFile, AccountTable, PlainAccount
from kourou.access.plain.addresses import AddressPattern, parse_pattern
from kourou.access.plain.documents import Document, parse_document, read_bytes
from kourou.access.plain.permissions import Permission, is_permission, parse_permission, split_grant
from kourou.errors import ConfigError
from kourou.protocol.bodies import DataVersion
from kourou.protocol.names import retry_topic
from kourou.wording import nearest

WHITE_KEY: Final = "globalWhiteRemoteAddresses"
ACCOUNTS_KEY: Final = "accounts"
VERSION_KEY: Final = "dataVersion"
MIN_KEY_LENGTH: Final = 7
"""RocketMQ takes longer than 6 characters, of access keys and secret keys."""
ACCOUNT_KEYS: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_TRUE: Final = frozenset({"true", "yes", "on", "1", "y", "t"})
_FALSE: Final = frozenset({"", "false", "no", "off", "0", "n", "f"})

Fingerprint = tuple[tuple[Path, int, int, int, int], ...]
"""Of each file its path, time of modification, size, inode and mode."""


class AccountFiles:
    """The files of a broker: `default`, and all `.yml` and `.yaml` at any depth below `folder`."""

    def __init__(self, default: Path, folder: Path) -> None:
        self.default = default
        self.folder = folder

    @classmethod
    def of_home(cls, home: Path) -> AccountFiles:
        """RocketMQ's places below a home folder."""
        return cls(home / "conf" / "plain_acl.yml", home / "conf" / "acl")

    def paths(self) -> list[Path]:
        """The files that exist: first those of the folder, by name, then the default one. ConfigError if a
        folder cannot be read."""
        try:
            found = sorted(
                Path(parent) / name
                for parent, _, names in os.walk(self.folder, onerror=_unless_missing)
                for name in names
                if name.endswith((".yml", ".yaml"))
            )
            if self.default not in found and self.default.exists():
                found.append(self.default)
        except OSError as error:
            raise ConfigError(f"{error.filename}: cannot be read: {error.strerror or error}") from error
        return found

    def fingerprint(self) -> Fingerprint:
        """Changes whenever a file or its mode does. ConfigError if one cannot be looked at."""
        return tuple(
            (path, stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_mode) for path, stat in self._stats()
        )

    def readable_by_others(self) -> list[Path]:
        """The files whose secrets every user of the machine can read."""
        return [path for path, stat in self._stats() if stat.st_mode & 0o004]

    def load(self, edited: Mapping[Path, Document] | None = None) -> AccountTable:
        """The table of all files; those of `edited` as given instead of as on disk. ConfigError, with all
        problems, if one of them cannot be used."""
        documents = dict(edited or {})
        files: list[AccountsFile] = []
        problems: list[str] = []
        for path in dict.fromkeys((*self.paths(), *documents)):
            try:
                document = documents[path] if path in documents else read_document(path)
                files.append(checked_file(path, document))
            except FileNotFoundError:
                continue
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        return AccountTable.of(tuple(files))

    def _stats(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.paths():
            try:
                yield path, path.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unless_missing(error: OSError) -> None:
    """Raise what os.walk would swallow: a folder that cannot be read is not an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error


def read_document(path: Path) -> Document:
    """What is in a file. FileNotFoundError; ConfigError if it is not readable as YAML."""
    return parse_document(read_bytes(path), str(path))


def checked_file(path: Path, document: Document) -> AccountsFile:
    """A file's content. ConfigError with all that is wrong with it."""
    return _FileReader(path, document).read()


class _FileReader:
    """Reads one file, and collects what is wrong."""

    def __init__(self, path: Path, document: Document) -> None:
        self._path = path
        self._document = document
        self._problems: list[str] = []
        self._notes: list[str] = []

    def read(self) -> AccountsFile:
        self._note_unknown(self._document, (WHITE_KEY, ACCOUNTS_KEY, VERSION_KEY), "")
        white_texts = self._texts(self._document.get(WHITE_KEY), WHITE_KEY)
        white = tuple(self._pattern(text, WHITE_KEY) for text in white_texts)
        raw_accounts = self._mappings(self._document.get(ACCOUNTS_KEY), ACCOUNTS_KEY)
        accounts = tuple(self._account(raw, number) for number, raw in enumerate(raw_accounts, 1))
        version = self._version(self._document.get(VERSION_KEY))
        if self._problems:
            raise ConfigError(*(f"{self._path}: {problem}" for problem in self._problems))
        return AccountsFile(
            path=self._path,
            white_texts=white_texts,
            white=white,
            accounts=accounts,
            raw_accounts=raw_accounts,
            version=version,
            is_empty=not self._document,
            notes=tuple(f"{self._path}: {note}" for note in self._notes),
        )

    def _account(self, raw: Mapping[str, Any], number: int) -> PlainAccount:
        name = self._text(raw.get("accessKey"), f"account {number}, accessKey") or ""
        where = f"account {name or number}"
        self._note_unknown(raw, ACCOUNT_KEYS, f"{where}, ")
        secret = self._text(raw.get("secretKey"), f"{where}, secretKey") or ""
        for key, value in (("accessKey", name), ("secretKey", secret)):
            if len(value) < MIN_KEY_LENGTH:
                self._problems.append(f"{where}, {key}: must be longer than {MIN_KEY_LENGTH - 1} characters")
        white = self._text(raw.get("whiteRemoteAddress"), f"{where}, whiteRemoteAddress") or ""
        listed = self._grants(raw.get("groupPerms"), f"{where}, groupPerms", is_group=True)
        listed |= self._grants(raw.get("topicPerms"), f"{where}, topicPerms", is_group=False)
        return PlainAccount(
            name=name,
            secret_key=secret,
            is_admin=self._truth(raw.get("admin"), f"{where}, admin"),
            exempt=self._pattern(white, f"{where}, whiteRemoteAddress"),
            default_topic=self._permission(raw.get("defaultTopicPerm"), f"{where}, defaultTopicPerm"),
            default_group=self._permission(raw.get("defaultGroupPerm"), f"{where}, defaultGroupPerm"),
            listed=listed,
            file=self._path,
        )

    # -- values ----------------------------------------------------------------------------------

    def _grants(self, value: Any, where: str, *, is_group: bool) -> dict[str, Permission]:
        granted: dict[str, Permission] = {}
        for text in self._texts(value, where):
            parts = split_grant(text)
            if parts is None:
                self._problems.append(f"{where}: {text!r} must be name=PERM, as in orders=PUB|SUB")
                continue
            name, word = parts
            granted[retry_topic(name) if is_group else name] = self._permission(word, f"{where}, {name}")
        return granted

    def _permission(self, value: Any, where: str) -> Permission:
        word = self._text(value, where)
        if word and not is_permission(word):
            self._notes.append(
                f"{where}: {word!r} is no permission and denies; there are PUB, SUB, PUB|SUB, DENY"
            )
        return parse_permission(word)

    def _pattern(self, text: str, where: str) -> AddressPattern:
        try:
            return parse_pattern(text)
        except ConfigError as error:
            self._problems.append(f"{where}: {error}")
            return parse_pattern("")

    def _version(self, value: Any) -> DataVersion:
        versions = self._mappings(value, VERSION_KEY)
        if not versions:
            return DataVersion()
        try:
            return DataVersion(
                timestamp=int(versions[0].get("timestamp") or 0), counter=int(versions[0].get("counter") or 0)
            )
        except (TypeError, ValueError):
            self._problems.append(f"{VERSION_KEY}: counter and timestamp must be numbers")
            return DataVersion()

    def _truth(self, value: Any, where: str) -> bool:
        word = (self._text(value, where) or "").lower()
        if word not in _TRUE and word not in _FALSE:
            self._problems.append(f"{where}: must be true or false")
        return word in _TRUE

    def _text(self, value: Any, where: str) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self._problems.append(f"{where}: must be a text")
        return None

    def _texts(self, value: Any, where: str) -> tuple[str, ...]:
        """A list of texts; blank is an empty one."""
        if not isinstance(value, list):
            if value not in (None, ""):
                self._problems.append(f"{where}: must be a list")
            return ()
        return tuple(self._text(entry, where) or "" for entry in value)

    def _mappings(self, value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
        if value in (None, ""):
            return ()
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self._problems.append(f"{where}: must be a list of mappings")
            return ()
        return tuple(value)

    def _note_unknown(self, mapping: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in mapping:
            if key not in known:
                near = nearest(str(key), known)
                hint = f"; did you mean {near}?" if near else ""
                self._notes.append(f"{where}key {key} is unknown and ignored{hint}")
