"""Checks of access control: open brokers, known keys, plain text beside accounts (of clients, and between
replicas), files that others can read.

What a broker does is read from its configuration; files are looked at only if they are on this machine. For
known keys a request is signed with them: three wrong logins at most for each broker, which its audit log has.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from kourou.admin.brokers import broker_configs
from kourou.admin.doctor.checks_machine import is_local
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity, merged
from kourou.admin.session import Admin
from kourou.client.core.credentials import Credentials
from kourou.client.core.refusals import is_wrong_login
from kourou.client.core.settings import ClientOptions
from kourou.errors import AccessDeniedError, KourouError, ResponseError
from kourou.protocol.codes import RequestCode
from kourou.protocol.names import COMPILED_KERNEL

_CHECK: Final = "access control"
# In the files that Apache ships.
_KNOWN_KEYS: Final = (Credentials("RocketMQ", "12345678"), Credentials("rocketmq2", "12345678"))
_NO_KEYS: Final = Credentials("kourou-doctor-has-no-account", "none")
_ENFORCING: Final = "enforcing"
_DOCUMENT: Final = "see docs/security.md"

BrokerConfig: TypeAlias = tuple[BrokerView, Mapping[str, str]]
"""A broker, and its configuration."""


async def check_access(snapshot: ClusterSnapshot) -> list[Finding]:
    """All checks of this file."""
    findings = await asyncio.to_thread(lambda: list(file_findings(_own_files(os.environ), "this machine")))
    read: list[BrokerConfig] = []
    for broker in snapshot.brokers:
        if broker.problem:
            continue
        (answer,) = await broker_configs(snapshot.admin, [broker.place.address])
        if answer.problem:
            snapshot.skip(_CHECK, broker.where, answer.problem)
            continue
        read.append((broker, answer.config))
        findings += open_findings(broker, answer.config)
        findings += plaintext_findings(broker, answer.config)
        if has_accounts(answer.config):
            findings += await _known_key_findings(snapshot, broker)
        if await asyncio.to_thread(is_local, _host(broker)):
            files = _broker_files(answer.config)
            findings += await asyncio.to_thread(lambda: list(file_findings(files, broker.where)))  # noqa: B023
    findings += [found for slave, master in _links(read) for found in link_findings(slave, master)]
    return merged(findings)


def has_accounts(config: Mapping[str, str]) -> bool:
    """Whether a broker checks the sender of a request."""
    return any(config.get(key) == "true" for key in ("aclEnable", "authenticationEnabled"))


def _host(broker: BrokerView) -> str:
    return broker.place.address.rpartition(":")[0].strip("[]")


# -- open brokers and plain text ---------------------------------------------------------------------


def open_findings(broker: BrokerView, config: Mapping[str, str]) -> Iterator[Finding]:
    """A broker without accounts whose address is reachable from everywhere."""
    if has_accounts(config) or not _is_public(_host(broker)):
        return
    if config.get("tls.server.need.client.auth") == "require" and _is_enforcing(config):
        return
    yield Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=broker.where,
        what="a public address, and no access control",
        meaning="any client can read, send and delete messages, and change the configuration",
        cure="close the port for the Internet, and switch on access control (authenticationEnabled=true and "
        f"authorizationEnabled=true, or aclEnable=true); {_DOCUMENT}",
    )


def plaintext_findings(broker: BrokerView, config: Mapping[str, str]) -> Iterator[Finding]:
    """Accounts on a port that serves plain text. Apache's brokers do not report their TLS."""
    if not has_accounts(config) or not _is_kourou(broker) or _is_loopback(_host(broker)):
        return
    if not _is_enforcing(config):
        yield Finding(
            severity=Severity.WARNING,
            check=_CHECK,
            where=broker.where,
            what="it has accounts, and serves connections without TLS",
            meaning="signatures protect secret keys, not messages: a listener reads them, and can "
            "send each request again",
            cure="set tls.server.mode=enforcing with a certificate (tls.server.certPath, tls.server.keyPath) "
            f"and tls.enable=true at all clients; {_DOCUMENT}",
        )


def _is_enforcing(config: Mapping[str, str]) -> bool:
    return config.get("tls.server.mode") == _ENFORCING


# -- between replicas --------------------------------------------------------------------------------


def _links(read: Sequence[BrokerConfig]) -> Iterator[tuple[BrokerConfig, BrokerConfig]]:
    """Each slave with its master."""
    masters = {
        (broker.place.cluster, broker.place.broker_name): (broker, config)
        for broker, config in read
        if broker.place.is_master
    }
    for broker, config in read:
        master = masters.get((broker.place.cluster, broker.place.broker_name))
        if master is not None and not broker.place.is_master:
            yield (broker, config), master


def link_findings(slave: BrokerConfig, master: BrokerConfig) -> Iterator[Finding]:
    """Accounts, and a link between replicas on different hosts that is plain text. Apache's brokers have no
    TLS there; `tls.enable.ha=false` at the slave says that the network encrypts."""
    (broker, config), (other, master_config) = slave, master
    if not has_accounts(master_config) or _host(broker) == _host(other):
        return
    own_switch = config.get("tls.enable.ha")
    is_enforced = (
        master_config.get("tls.server.mode.ha") or master_config.get("tls.server.mode")
    ) == _ENFORCING
    are_kourou = _is_kourou(broker) and _is_kourou(other)
    is_encrypted = are_kourou and (own_switch or config.get("tls.enable")) == "true"
    if is_encrypted or own_switch == "false" or (_is_kourou(other) and is_enforced):
        return
    cure = (
        "give the master a certificate (tls.server.certPath, tls.server.keyPath) and set tls.enable=true or "
        "tls.enable.ha=true at the slave; then tls.server.mode.ha=enforcing refuses plain text"
        if are_kourou
        else "use a private network or an encrypted tunnel: Apache's brokers have no TLS on this link"
    )
    yield Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=broker.where,
        what=f"it copies the log of its master {other.place.address}, which has accounts, without TLS",
        meaning="every message crosses the network in clear, also those of clients that use TLS",
        cure=f"{cure}; {_DOCUMENT}",
    )


def _is_kourou(broker: BrokerView) -> bool:
    return COMPILED_KERNEL in broker.runtime


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False  # a name: where it leads depends on the resolver


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- known keys --------------------------------------------------------------------------------------


async def _known_key_findings(snapshot: ClusterSnapshot, broker: BrokerView) -> list[Finding]:
    address = broker.place.address
    try:
        if await _is_known(snapshot.admin, address, _NO_KEYS):
            return []  # the address of this machine is exempt, so that any key would do
        known = [keys.access_key for keys in _KNOWN_KEYS if await _is_known(snapshot.admin, address, keys)]
    except KourouError as error:
        snapshot.skip(_CHECK, broker.where, f"known keys: {error}")
        return []
    return [_known_key(broker, access_key) for access_key in known]


async def _is_known(admin: Admin, address: str, keys: Credentials) -> bool:
    """Whether a request that is signed with these keys passes as that of an account."""
    options: ClientOptions = {**admin.options, "credentials": keys}
    async with Admin(**options) as other:
        try:
            await other.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except AccessDeniedError as error:
            return not is_wrong_login(error.remark)
        except ResponseError:
            return True  # the request has passed the check of its signature
    return True


def _known_key(broker: BrokerView, access_key: str) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=broker.where,
        what=f"the account {access_key} has the secret key of Apache's sample files",
        meaning="the key is public",
        cure="delete the account, or change its key (mqadmin updateAclConfig, updateUser)",
    )


# -- files -------------------------------------------------------------------------------------------


def _own_files(environ: Mapping[str, str]) -> list[Path]:
    """The file with this user's keys."""
    home = environ.get("ROCKETMQ_HOME")
    return [Path(home, "conf", "tools.yml")] if home else []


def _broker_files(config: Mapping[str, str]) -> list[Path]:
    """The files of a broker that may have secrets."""
    files = [Path(config[key]) for key in ("tls.server.keyPath", "tls.client.keyPath") if config.get(key)]
    if home := config.get("rocketmqHome"):
        conf = Path(home, "conf")
        files += [conf / "plain_acl.yml", conf / "tools.yml", conf / "broker.conf"]
        files += sorted(conf.glob("acl/*.y*ml"))
    if store := config.get("storePathRootDir"):
        files.append(Path(store, "config", "users.json"))
    return files


def file_findings(files: list[Path], where: str) -> Iterator[Finding]:
    """Files with secrets that every user of the machine can read."""
    readable = [str(path) for path in files if _has_secrets(path) and _is_readable_by_others(path)]
    if readable:
        yield Finding(
            severity=Severity.WARNING,
            check=_CHECK,
            where=where,
            what=f"readable by every user of the machine: {', '.join(readable)}",
            meaning="every user of that machine can read the keys",
            cure="let their owner alone read them",
            commands=tuple(f"chmod 600 {path}" for path in readable),
        )


def _is_readable_by_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _has_secrets(path: Path) -> bool:
    """A configuration counts only if it names a password or a secret key."""
    if path.name not in ("broker.conf", "tools.yml"):
        return True
    words = (b"secretKey:", b"secretKey=", b"password", b'secretKey"', b"keyPassword")
    try:
        lines = [line.strip() for line in path.read_bytes()[: 1 << 20].splitlines()]
    except OSError:
        return False
    return any(word in line for line in lines if not line.startswith(b"#") for word in words)
