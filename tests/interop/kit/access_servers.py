"""Brokers with access control: Apache's of both versions, and ours with the same settings and accounts.

RocketMQ 4 has its file plain_acl.yml, RocketMQ 5 its users and policies, which an administrator creates.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kourou.protocol.codes import RequestCode
from tests.interop.kit import apache
from tests.interop.kit.access_accounts import ACCOUNTS, ADMIN, Identity, acl_body, plain_acl_yml, user_body
from tests.interop.kit.kourou_broker import launch_kourou_broker
from tests.interop.kit.process import ServerProcess
from tests.interop.kit.signed_wire import SignedConnection

OURS: Final = "kourou"
"""Our broker, among the versions of Apache's."""
PLAIN: Final = "4.9.7"
AUTH: Final = "5.5.0"

_PACKAGE: Final = "org.apache.rocketmq.auth"
AUTH_SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": (
        f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": (
        f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
    ),
}
"""Keys of a broker with RocketMQ 5's rules, ours or Apache's."""
_SETTINGS: Final = {PLAIN: {"aclEnable": "true"}, AUTH: AUTH_SETTINGS}
_PLAIN_FILE: Final = "plain_acl.yml"


def launch_with_accounts(
    server: str, rules: str, work_dir: Path, namesrvs: Sequence[str], **settings: str
) -> ServerProcess:
    """Launch a broker, ours or Apache's, with the rules of a version (PLAIN or AUTH). `create_accounts`
    once it is ready: until then RocketMQ 5 knows the administrator only."""
    if server == OURS:
        home = Path(tempfile.mkdtemp(prefix=f"access-{rules}-", dir=work_dir))
        _write_plain_file(rules, home)
        properties = {**_SETTINGS[rules], "rocketmqHome": str(home), **settings}
        return launch_kourou_broker(home, namesrvs, properties)
    conf_files = {_PLAIN_FILE: plain_acl_yml()} if rules == PLAIN else {}
    properties = {**_SETTINGS[rules], **settings}
    return apache.start_broker(
        server, work_dir, namesrvs, properties=properties, conf_files=conf_files, wait=False
    )


def _write_plain_file(rules: str, home: Path) -> None:
    if rules == PLAIN:
        (home / "conf").mkdir()
        (home / "conf" / _PLAIN_FILE).write_text(plain_acl_yml())


def create_accounts(address: str, rules: str, admin: Identity = ADMIN.identity) -> None:
    """Create all accounts where the rules are RocketMQ 5's; RocketMQ 4's are in the file."""
    if rules == PLAIN:
        return
    with SignedConnection(address, admin) as connection:
        for account in ACCOUNTS:
            if account.identity != admin:
                _done(
                    connection,
                    RequestCode.AUTH_CREATE_USER,
                    "username",
                    account.access_key,
                    user_body(account),
                )
            body = acl_body(account)
            if body is not None:
                subject = f"User:{account.access_key}"
                _done(connection, RequestCode.AUTH_CREATE_ACL, "subject", subject, body)


def _done(connection: SignedConnection, code: int, name: str, value: str, body: bytes) -> None:
    answer = connection.call(code, {name: value}, body)
    assert answer is not None and answer.code == 0, f"{value} is not created: {answer}"
