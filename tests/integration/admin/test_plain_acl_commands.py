"""Commands about accounts of RocketMQ 4, whole command lines against a broker that has some."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.testing.cluster import Cluster, cluster
from tests.integration.admin.on_terminal import run_on_terminal
from tests.unit.admin.command_line import Result, run_line

ROOT_SECRET = "secret-of-root"
ACCOUNTS = f"""\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: rootuser
  secretKey: {ROOT_SECRET}
  admin: true
- accessKey: reader-1
  secretKey: secret-of-reader
  defaultTopicPerm: SUB
"""
SHOWN = """\

globalWhiteRemoteAddresses: [10.10.103.*]

accounts:
  accessKey         : rootuser
  secretKey         : ***
  whiteRemoteAddress:\x20
  admin             : true
  defaultTopicPerm  :\x20
  defaultGroupPerm  :\x20
  topicPerms        :\x20
  groupPerms        :\x20

  accessKey         : reader-1
  secretKey         : ***
  whiteRemoteAddress:\x20
  admin             : false
  defaultTopicPerm  : SUB
  defaultGroupPerm  :\x20
  topicPerms        :\x20
  groupPerms        :\x20

"""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    async with cluster(tmp_path, acl_enable=True, rocketmq_home=str(home)) as started:
        yield started


async def line(
    running: Cluster, root: Path, *words: str, user: str = "rootuser", secret: str = ROOT_SECRET
) -> Result:
    keys = root / f"{user}.yml"
    keys.write_text(f"accessKey: {user}\nsecretKey: {secret}\n")
    keys.chmod(0o600)
    return await run_line(running.namesrv_addr, *words, "--acl", str(keys))


async def test_accounts_are_listed_without_secrets(running: Cluster, tmp_path: Path) -> None:
    for where in (("-b", running.broker.address), ("-c", "DefaultCluster")):
        result = await line(running, tmp_path, "getAclConfig", *where)
        assert (result.exit_code, result.stdout) == (0, SHOWN)
    as_json = (await line(running, tmp_path, "getAclConfig", "-c", "DefaultCluster", "--json")).json
    accounts = as_json[0]["config"]["plainAccessConfigs"]
    assert [account["secretKey"] for account in accounts] == ["***", "***"]


async def test_account_is_created_used_and_deleted(running: Cluster, tmp_path: Path) -> None:
    address = running.broker.address
    created = await line(
        running,
        tmp_path,
        *("updateAclConfig", "-c", "DefaultCluster", "-a", "newadmin", "-s", "new-secret"),
        *("-m", "true", "-t", "Orders=PUB|SUB,Bills=DENY", "-i", "SUB"),
    )
    assert created.stdout == (
        f"create or update plain access config to {address} success.\n"
        "PlainAccessConfig{accessKey='newadmin', whiteRemoteAddress='null', admin=true, "
        "defaultTopicPerm='SUB', defaultGroupPerm='null', topicPerms=[Orders=PUB|SUB, Bills=DENY], "
        "groupPerms=null}"
    )
    keys = {"user": "newadmin", "secret": "new-secret"}
    listed = await line(running, tmp_path, "getAclConfig", "-b", address, **keys)
    assert "  topicPerms        : [Orders=PUB|SUB, Bills=DENY]\n" in listed.stdout
    deleted = await line(running, tmp_path, "deleteAccessConfig", "-b", address, "-a", "newadmin", "--yes")
    assert deleted.stdout == (
        f"delete plain access config account from {address} success.\naccount's accesskey is:newadmin"
    )
    refused = await line(running, tmp_path, "getAclConfig", "-b", address, **keys)
    assert refused.exit_code == 1
    assert "No acl config for newadmin" in refused.problem


async def test_an_administrator_is_told_of_the_loss_of_its_own_rights(
    running: Cluster, tmp_path: Path
) -> None:
    """A script is not asked. Without -m true an account is an ordinary one, as with Apache's."""
    change = ("updateAclConfig", "-b", running.broker.address, "-s", "another-secret")
    for words in (("-a", "reader-1"), ("-a", "newadmin", "-m", "true")):
        assert (await line(running, tmp_path, *change, *words)).stderr == ""
    keys = {"user": "newadmin", "secret": "another-secret"}
    assert (await line(running, tmp_path, *change, "-a", "newadmin", "-m", "true", **keys)).stderr == ""
    lost = await line(running, tmp_path, *change, "-a", "newadmin", **keys)
    assert (lost.exit_code, lost.stderr) == (
        0,
        "note: without -m true newadmin, which signs this command, is no administrator any more; to undo "
        "that, edit plain_acl.yml of the brokers\n",
    )
    refused = await line(running, tmp_path, *change, "-a", "newadmin", "-m", "true", **keys)
    assert "Need admin permission" in refused.problem


async def test_on_a_terminal_it_is_asked(running: Cluster, tmp_path: Path) -> None:
    keys = tmp_path / "rootuser.yml"
    keys.write_text(f"accessKey: rootuser\nsecretKey: {ROOT_SECRET}\n")
    keys.chmod(0o600)
    change = ["updateAclConfig", "-n", running.namesrv_addr, "-b", running.broker.address, "--acl", str(keys)]
    shown, exit_code = await asyncio.to_thread(
        run_on_terminal,
        [*change, "-a", "rootuser", "-s", ROOT_SECRET],
        lambda shown: "is no administrator any more. Change it? [y/N]" in shown,
        b"n\n",
    )
    assert exit_code != 0 and "nothing was done" in shown
    assert (await line(running, tmp_path, "getAclConfig", "-b", running.broker.address)).exit_code == 0


async def test_only_administrators_see_and_change_accounts(running: Cluster, tmp_path: Path) -> None:
    for words in (
        ("getAclConfig",),
        ("clusterAclConfigVersion",),
        ("updateAclConfig", "-a", "reader-1", "-s", "secret-of-reader", "-m", "true"),
        ("deleteAclConfig", "-a", "rootuser", "--yes"),
        ("updateGlobalWhiteAddr", "-g", "127.0.0.1"),
    ):
        result = await line(
            running,
            tmp_path,
            *(*words, "-b", running.broker.address),
            user="reader-1",
            secret="secret-of-reader",
        )
        assert result.exit_code == 1
        assert "Need admin permission for request code=5" in result.problem


async def test_reasons_of_a_broker_are_shown_without_secrets(running: Cluster, tmp_path: Path) -> None:
    where = ("-b", running.broker.address)
    short = await line(running, tmp_path, "updateAclConfig", *where, "-a", "account-1", "-s", "tiny!")
    assert short.exit_code == 1 and "CODE: 209" in short.problem
    assert "The accessKey=account-1 and secretKey=***" in short.problem and "tiny!" not in short.problem
    absent = await line(running, tmp_path, "deleteAclConfig", *where, "-a", "nobody-1", "--yes")
    assert "CODE: 210" in absent.problem
    wrong = await line(running, tmp_path, "updateGlobalWhiteAddr", *where, "-g", "10.*")
    assert "CODE: 211" in wrong.problem and "'10.*'" in wrong.problem


async def test_exempt_addresses_and_versions(running: Cluster, tmp_path: Path) -> None:
    address = running.broker.address
    result = await line(
        running, tmp_path, "updateGlobalWhiteAddr", "-c", "DefaultCluster", "-g", "10.0.0.{1,2},127.0.0.1"
    )
    assert result.stdout == f"update global white remote addresses to {address} success.\n"
    unsigned = await run_line(running.namesrv_addr, "clusterAclConfigVersion", "-c", "DefaultCluster")
    head, row, end = unsigned.lines
    assert head.split("  ")[0] == "#Cluster Name" and end == (
        "get cluster's plain access config version success."
    )
    path = tmp_path / "home" / "conf" / "plain_acl.yml"
    expected = f"DefaultCluster    broker-a                {address:<22}  {path}  1                       "
    assert row.startswith(expected)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +", row[len(expected) :])
    of_broker = await run_line(running.namesrv_addr, "clusterAclConfigVersion", "-b", address)
    assert of_broker.lines == [row, "get broker's plain access config version success."]
    # An exempt address is not an administrator: the secret keys stay in the broker, and on our screen.
    as_json = (await run_line(running.namesrv_addr, "clusterAclConfigVersion", "-b", address, "--json")).json
    assert as_json[0]["files"][0]["counter"] == 1


async def test_where_access_control_is_off(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        where = ("-b", running.broker.address)
        for words in (
            ("getAclConfig",),
            ("clusterAclConfigVersion",),
            ("updateAclConfig", "-a", "account-1", "-s", "12345678"),
            ("deleteAclConfig", "-a", "account-1", "--yes"),
            ("updateGlobalWhiteAddr", "-g", "127.0.0.1"),
        ):
            result = await run_line(running.namesrv_addr, *words, *where)
            assert result.exit_code == 1
            assert "without aclEnable=true" in result.problem
