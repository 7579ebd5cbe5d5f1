"""The doctor at brokers with accounts: keys that everybody knows, files that everybody reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.admin.doctor.checks_access import check_access
from kourou.admin.doctor.cluster_snapshot import take_snapshot
from kourou.admin.doctor.findings import Finding
from kourou.admin.session import Admin
from kourou.client.core.credentials import Credentials
from kourou.testing.cluster import cluster

pytestmark = pytest.mark.e2e


async def findings(root: Path, keys: Credentials, **settings: Any) -> list[Finding]:
    async with (
        cluster(root, **settings) as running,
        Admin(namesrv=running.namesrv_addr, credentials=keys) as admin,
    ):
        snapshot = await take_snapshot(admin, None, 0)
        found = await check_access(snapshot)
        assert not [skipped for skipped in snapshot.not_checked if skipped.check == "access control"]
        return found


@pytest.mark.parametrize(("user", "is_known"), [("rocketmq2", True), ("RocketMQ", True), ("ann", False)])
async def test_the_keys_of_apaches_sample_files(tmp_path: Path, user: str, is_known: bool) -> None:
    found = await findings(
        tmp_path,
        Credentials(user, "12345678"),
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=f'{{"username":"{user}","password":"12345678"}}',
    )
    assert [user in each.what and "sample files" in each.what for each in found] == [True] * is_known


async def test_accounts_of_rocketmq_4_in_a_readable_file(tmp_path: Path) -> None:
    """A broker closes the file at its start; here somebody opens it again."""
    accounts = tmp_path / "home" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text("accounts:\n- accessKey: rocketmq2\n  secretKey: '12345678'\n  admin: true\n")
    keys = Credentials("rocketmq2", "12345678")
    async with (
        cluster(tmp_path / "c", acl_enable=True, rocketmq_home=str(tmp_path / "home")) as running,
        Admin(namesrv=running.namesrv_addr, credentials=keys) as admin,
    ):
        snapshot = await take_snapshot(admin, None, 0)
        accounts.chmod(0o644)
        found = await check_access(snapshot)
    assert {each.what.partition(":")[0] for each in found} == {
        "readable by every user of the machine",
        "the account rocketmq2 has the secret key of Apache's sample files",
    }
    assert [each.commands for each in found if each.commands] == [(f"chmod 600 {accounts}",)]
