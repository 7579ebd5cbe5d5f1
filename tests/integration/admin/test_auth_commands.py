"""Commands about users and policies, against running brokers with access control."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kourou.testing.cluster import cluster
from tests.unit.admin.command_line import Result, run_line

CLUSTER = ("-c", "DefaultCluster")


@dataclass(frozen=True, slots=True)
class Guarded:
    """Two brokers with access control, and an administrator's keys."""

    namesrv: str
    a: str
    b: str
    keys: Path

    async def line(self, *words: str) -> Result:
        """Run a command as the administrator."""
        return await self.line_as(self.keys, *words)

    async def line_as(self, keys: Path, *words: str) -> Result:
        """Run a command with the keys of a file."""
        name, *rest = words
        return await run_line(self.namesrv, name, "--acl", str(keys), *rest)


def keys_file(path: Path, name: str, password: str) -> Path:
    """A tools.yml."""
    path.write_text(f"accessKey: {name}\nsecretKey: {password}\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with cluster(
        tmp_path,
        brokers=2,
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"root","password":"root-secret"}',
    ) as running:
        a, b = (broker.address for broker in running.brokers)
        keys = keys_file(tmp_path / "tools.yml", "root", "root-secret")
        yield Guarded(running.namesrv_addr, a, b, keys)


def row(*cells: str) -> str:
    return "{:<16}  {:<22}  {:<22}  {:<22}".format(*cells)


def acl_row(*cells: str) -> str:
    return "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}".format(*cells)


USER_HEADS = row("#UserName", "#Password", "#UserType", "#UserStatus")
ACL_HEADS = acl_row("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")


async def test_users(tmp_path: Path) -> None:
    async with guarded(tmp_path) as found:
        made = await found.line("createUser", *CLUSTER, "-u", "alice", "-p", "secret-1")
        assert made.lines == [f"create user to {found.a} success.", f"create user to {found.b} success."]
        again = await found.line("createUser", "-b", found.a, "-u", "alice", "-p", "secret-1")
        assert "CODE: 16  DESC: The user is existed" in again.problem and again.exit_code == 1

        changed = await found.line("updateUser", "-b", "broker-a", "-u", "alice", "-s", "disable")
        assert changed.lines == [f"update user to {found.a} success."]
        shown = await found.line("getUser", "-b", found.a, "-u", "alice")
        assert shown.lines == [USER_HEADS, row("alice", "secret-1", "Normal", "disable")]
        in_json = await found.line("getUser", "-b", found.a, "-u", "alice", "--json")
        assert in_json.json["users"][0]["userStatus"] == "disable" and "secret-1" not in in_json.stdout
        assert (await found.line("getUser", "-b", found.a, "-u", "nobody")).stdout == ""

        listed = await found.line("listUser", *CLUSTER, "-f", "ali")
        assert listed.lines == [*shown.lines, f"get user from {found.a} success."]

        deleted = await found.line("deleteUser", *CLUSTER, "-u", "alice")
        assert deleted.lines == [f"delete user to {found.a} success.", f"delete user to {found.b} success."]
        assert (await found.line("listUser", "-b", found.b, "-f", "ali")).stdout == ""


async def test_policies(tmp_path: Path) -> None:
    async with guarded(tmp_path) as found:
        await found.line("createUser", *CLUSTER, "-u", "alice", "-p", "secret-1")
        grant = ("-s", "User:alice", "-r", "Topic:a,Group:g*", "-a", "Pub,Sub", "-d", "Allow")
        made = await found.line("createAcl", *CLUSTER, *grant, "-i", "10.0.0.1,10.1.0.0/16")
        assert made.lines == [f"create acl to {found.a} success.", f"create acl to {found.b} success."]
        changed = await found.line(
            "updateAcl", "-b", found.a, "-s", "User:alice", "-r", "Topic:a", "-a", "Sub", "-d", "Deny"
        )
        assert changed.lines == [f"update acl to {found.a} success."]
        sources = "[10.0.0.1, 10.1.0.0/16]"
        of_group = acl_row("User:alice", "Custom", "Group:g*", "[Pub, Sub]", sources, "Allow")
        on_a = [ACL_HEADS, acl_row("User:alice", "Custom", "Topic:a", "[Sub]", "null", "Deny"), of_group]
        on_b = [
            ACL_HEADS,
            acl_row("User:alice", "Custom", "Topic:a", "[Pub, Sub]", sources, "Allow"),
            of_group,
        ]
        assert (await found.line("getAcl", "-b", found.a, "-s", "User:alice")).lines == on_a
        assert (await found.line("listAcl", *CLUSTER)).lines == on_a + on_b
        assert (await found.line("listAcl", "-b", found.b, "-r", "Group:")).lines == [ACL_HEADS, of_group]

        deleted = await found.line("deleteAcl", "-b", found.a, "-s", "User:alice", "-r", "Group:g*")
        assert deleted.lines == [f"delete acl to {found.a} success."]
        assert (await found.line("getAcl", "-b", found.a, "-s", "User:alice")).lines == on_a[:2]
        await found.line("deleteAcl", "-b", found.a, "-s", "User:alice")
        assert (await found.line("getAcl", "-b", found.a, "-s", "User:alice")).stdout == ""
        wrong = await found.line(
            "createAcl", "-b", found.a, "-s", "User:bob", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"
        )
        assert "CODE: 16  DESC: The subject of User:bob is not exist." in wrong.problem


async def test_copies(tmp_path: Path) -> None:
    async with guarded(tmp_path) as found:
        await found.line("createUser", "-b", found.a, "-u", "alice", "-p", "secret-1")
        await found.line(
            "createAcl", "-b", found.a, "-s", "User:alice", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"
        )
        copied = await found.line("copyUser", "-f", found.a, "-t", found.b)
        assert copied.lines == [
            f"copy user of {name} from {found.a} to {found.b} success." for name in ("alice", "root")
        ]
        copied = await found.line("copyAcl", "-f", found.a, "-t", found.b, "-s", "User:alice")
        assert copied.lines == [f"copy acl of User:alice from {found.a} to {found.b} success."]
        for command in (("getUser", "-u", "alice"), ("getAcl", "-s", "User:alice")):
            on_a, on_b = [await found.line(*command, "-b", address) for address in (found.a, found.b)]
            assert on_a.lines == on_b.lines and len(on_a.lines) == 2
        assert (await found.line("copyUser", "-f", found.a, "-t", found.b, "-u", "none")).stdout == ""


async def test_ordinary_users_get_no_passwords(tmp_path: Path) -> None:
    async with guarded(tmp_path) as found:
        await found.line("createUser", *CLUSTER, "-u", "alice", "-p", "secret-1")
        alice = keys_file(tmp_path / "alice.yml", "alice", "secret-1")
        refused = await found.line_as(alice, "listUser", "-b", found.a)
        assert "User:alice has no permission to access Cluster:DefaultCluster from" in refused.problem
        await found.line(
            "createAcl", *CLUSTER, "-s", "User:alice", "-r", "Cluster:*", "-a", "Get", "-d", "Allow"
        )
        listed = await found.line_as(alice, "listUser", "-b", found.a, "-f", "root")
        assert listed.lines == [USER_HEADS, row("root", "null", "Super", "enable")]
        copied = await found.line_as(alice, "copyUser", "-f", found.a, "-t", found.b)
        assert copied.exit_code == 1 and "returns passwords to Super users only" in copied.stderr


async def test_broker_without_access_control_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        made = await run_line(
            running.namesrv_addr, "createUser", "-b", running.broker.address, "-u", "alice", "-p", "secret-1"
        )
        assert "started without authenticationEnabled=true" in made.problem
