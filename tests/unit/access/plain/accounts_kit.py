"""Files of accounts in a temporary home, and calls that are checked against them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kourou.access.model import AccessCall, Action, Need, Needs, Resource, ResourceType
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.rules import PlainRules
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of

SECRET: Final = "secret-of-all"

ACCOUNTS: Final = f"""\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: producer
  secretKey: {SECRET}
  whiteRemoteAddress: 10.0.0.7
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
  - bills=SUB
  groupPerms:
  - closed=DENY
- accessKey: everything
  secretKey: {SECRET}
  admin: true
- accessKey: limited-admin
  secretKey: {SECRET}
  admin: true
  defaultTopicPerm: PUB
  topicPerms:
  - orders=DENY
"""


def home_files(home: Path, text: str = ACCOUNTS, **others: str) -> AccountFiles:
    """plain_acl.yml with this text, and files of the folder acl."""
    files = AccountFiles.of_home(home)
    write(files.default, text)
    for name, other in others.items():
        write(files.folder / f"{name}.yml", other)
    return files


def write(path: Path, text: str) -> None:
    """A private file, with a time of modification of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before_ns = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    path.chmod(0o600)
    if before_ns:
        os.utime(path, ns=(before_ns + 1_000_000, before_ns + 1_000_000))


def rules_of(files: AccountFiles) -> PlainRules:
    rules = PlainRules(files)
    rules.load()
    return rules


def topic(name: str, action: Action) -> Need:
    return Need(Resource(ResourceType.TOPIC, name), frozenset({action}))


def group(name: str) -> Need:
    return Need(Resource(ResourceType.GROUP, name), frozenset({Action.SUB}))


def call(
    *needs: Need,
    key: str | None = "producer",
    secret: str = SECRET,
    address: str = "192.168.1.1",
    code: int = RequestCode.SEND_MESSAGE_V2,
    admin_only: bool = False,
    certificate_user: str | None = None,
) -> AccessCall:
    """A call that is signed, unless it has no access key."""
    fields = {"b": "orders"}
    if key is not None:
        fields[ACCESS_KEY] = key
        fields[SIGNATURE] = signature_of(fields, b"body", secret)
    return AccessCall(
        code=code,
        version=401,
        fields=fields,
        body=b"body",
        address=address,
        needs=Needs(plain=needs, is_plain_admin_only=admin_only),
        certificate_user=certificate_user,
    )
