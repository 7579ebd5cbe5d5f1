"""Users and policies on disk."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.access.auth.data import AuthData
from kourou.access.auth.model import User, UserStatus, UserType
from kourou.access.auth.seeding import with_configured_users
from kourou.access.auth.settings import AuthSettings, Credentials, parse_whitelist
from kourou.access.auth.tables import AuthTables
from kourou.errors import ConfigError
from tests.unit.access.auth.calls import ALICE, ROOT, acl, data, entry

CONTENT = data(
    ROOT,
    replace(ALICE, status=UserStatus.DISABLE),
    acls=(acl(entry("Topic:orders*", "Pub,Sub", "Allow", "10.0.0.0/8"), entry("*", "All", "Deny")),),
)


def loaded(folder: Path) -> AuthTables:
    tables = AuthTables(folder, lambda: 7)
    tables.load()
    return tables


def test_written_and_read(tmp_path: Path) -> None:
    tables = loaded(tmp_path)
    tables.replace(CONTENT)
    again = loaded(tmp_path)
    assert again.current == tables.current
    assert again.current.same_as(CONTENT)
    assert (again.current.version.counter, again.current.version.timestamp) == (1, 7)
    for name in ("users.json", "acls.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_json_is_that_of_rocketmq(tmp_path: Path) -> None:
    loaded(tmp_path).replace(CONTENT)
    assert json.loads((tmp_path / "users.json").read_bytes())["users"] == [
        {"username": "alice", "password": "alice-secret", "userType": "Normal", "userStatus": "disable"},
        {"username": "root", "password": "root-secret", "userType": "Super", "userStatus": "enable"},
    ]
    (policies,) = json.loads((tmp_path / "acls.json").read_bytes())["acls"]
    assert policies == {
        "subject": "User:alice",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {
                        "resource": "Topic:orders*",
                        "actions": ["Pub", "Sub"],
                        "sourceIps": ["10.0.0.0/8"],
                        "decision": "Allow",
                    },
                    {"resource": "*", "actions": ["All"], "decision": "Deny"},
                ],
            }
        ],
    }


@pytest.mark.parametrize("name", ["users.json", "acls.json"])
@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b'{"users":[{"username":"a","password":"hidden"', b"[]"])
def test_damaged_file_stops_the_start(tmp_path: Path, name: str, damage: bytes) -> None:
    tables = loaded(tmp_path)
    tables.replace(CONTENT)
    tables.replace(tables.current.with_user(User("new", "x")))
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(ConfigError, match=f"{name} is damaged") as caught:
        loaded(tmp_path)
    assert "hidden" not in str(caught.value)


def test_nonsense_in_a_file_stops_the_start(tmp_path: Path) -> None:
    loaded(tmp_path).replace(CONTENT)
    path = tmp_path / "users.json"
    path.write_bytes(path.read_bytes().replace(b'"disable"', b'"disabled"'))
    with pytest.raises(ConfigError, match="userStatus is illegal"):
        loaded(tmp_path)


def test_change_that_cannot_be_written_does_not_act(tmp_path: Path) -> None:
    tables = loaded(tmp_path / "config")
    (tmp_path / "config").write_bytes(b"")
    with pytest.raises(OSError):
        tables.replace(CONTENT)
    assert tables.current == AuthData()


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    tables = loaded(tmp_path)
    tables.replace(AuthData())
    assert list(tmp_path.iterdir()) == []
    tables.replace(CONTENT)
    changes: list[int] = []
    tables.on_change.append(lambda: changes.append(1))
    tables.replace(CONTENT)
    assert (tables.current.version.counter, changes) == (1, [])


class TestConfiguredUsers:
    INNER = AuthSettings(inner_credentials=Credentials("inner", "secret"))

    def test_created_as_super_users(self) -> None:
        settings = AuthSettings(
            init_user=Credentials("root", "p"), inner_credentials=Credentials("inner", "secret")
        )
        made = with_configured_users(AuthData(), settings)
        assert {user.name: user.type for user in made.users.values()} == {
            "root": UserType.SUPER,
            "inner": UserType.SUPER,
        }

    def test_first_user_stays_as_the_administrator_left_it(self) -> None:
        before = data(replace(ROOT, status=UserStatus.DISABLE))
        settings = AuthSettings(init_user=Credentials("root", "other"))
        assert with_configured_users(before, settings) is before

    def test_password_of_the_inner_credentials_is_followed(self) -> None:
        before = data(User("inner", "old", UserType.SUPER))
        assert with_configured_users(before, self.INNER).users["inner"].password == "secret"

    def test_ordinary_user_does_not_get_the_inner_credentials(self) -> None:
        before = data(User("inner", "old"))
        assert with_configured_users(before, self.INNER) is before


def test_credentials_of_the_configuration() -> None:
    parsed = Credentials.parse("k", '{"username":"a","password":"b"}')
    assert parsed == Credentials("a", "b") == Credentials.parse("k", '{"accessKey":"a","secretKey":"b"}')
    assert Credentials.parse("k", " ") is None
    for wrong in ("a:hidden", '{"username":"hidden"}', '{"username":"a","password":{"x":"hidden"}}', "[]"):
        with pytest.raises(ConfigError, match="k must be") as caught:
            Credentials.parse("k", wrong)
        assert "hidden" not in str(caught.value)
    assert "b" not in repr(parsed).replace("Credentials", "")


def test_whitelist_of_the_configuration() -> None:
    assert parse_whitelist("k", " 11, 34,") == {11, 34}
    with pytest.raises(ConfigError, match="k: PULL, -1: must be"):
        parse_whitelist("k", "11,PULL,-1")
