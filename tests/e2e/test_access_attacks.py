"""Attacks on a broker with accounts: none gets what it wants, and others are served meanwhile.

Everything goes over raw sockets to the process that a user starts. The rules of both versions of RocketMQ are
attacked: accounts in plain_acl.yml, and users with policies.
"""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of
from tests.interop.kit.access_accounts import ACCOUNTS, ADMIN, NOBODY, OPEN, UNSIGNED, WORKER, Identity
from tests.interop.kit.access_answers import Answer, answer_of
from tests.interop.kit.access_servers import AUTH, OURS, PLAIN, create_accounts, launch_with_accounts
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.process import ServerProcess
from tests.interop.kit.signed_wire import SignedConnection

pytestmark = pytest.mark.e2e

_FLOOD_S: Final = 2.0
_RATE: Final = 10_000
_BATCH: Final = 500
_MEMORY_BOUND_BYTES: Final = 80_000_000
_PAGE: Final = resource.getpagesize()


@dataclass
class Attacked:
    """A broker with accounts, and where it keeps what it writes."""

    rules: str
    broker: ServerProcess

    @property
    def home(self) -> Path:
        """The folder of everything that belongs to it."""
        return self.broker.log_path.parents[1]

    def connect(self, identity: Identity = ADMIN.identity) -> SignedConnection:
        """A connection with the keys of an identity."""
        return SignedConnection(self.broker.address, identity)

    def ask(self, identity: Identity, code: int, fields: Mapping[str, str] = {}, body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        with self.connect(identity) as connection:
            return answer_of(connection.call(code, fields, body))

    def audit_text(self) -> str:
        """Its audit log, which is written each second."""
        return "".join(path.read_text() for path in self.home.rglob("audit_broker*.log*"))

    def config(self) -> str:
        """Its configuration, as an administrator sees it."""
        with self.connect() as connection:
            answer = connection.call(Code.GET_BROKER_CONFIG)
            assert answer is not None and answer.code == 0, answer
            return answer.body.decode()


def _launched(rules: str, folder: Path, **settings: str) -> Attacked:
    attacked = Attacked(rules, launch_with_accounts(OURS, rules, folder, [], **settings))
    attacked.broker.wait_ready()
    create_accounts(attacked.broker.address, rules)
    return attacked


@pytest.fixture(scope="module", params=[PLAIN, AUTH])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """Wrong signatures do not lock out here: they are attacks of their own, below."""
    found = _launched(request.param, tmp_path_factory.mktemp("attacked"), accessLockoutAttempts="0")
    with found.broker:
        yield found


def _send_fields(topic: str, group: str = "Workers") -> dict[str, str]:
    values = (group, topic, "TBW102", "4", "0", "0", "1700000000000", "0", "", "0", "false")
    return dict(zip("abcdefghijk", values, strict=True))


def _is_wrong_signature(answer: Answer) -> bool:
    return answer.is_refusal and "check signature failed" in (answer.remark or "").lower()


# -- signatures ----------------------------------------------------------------------------------


def _tampered() -> dict[str, RemotingCommand]:
    """Requests whose signature was right, and then something was changed."""
    fields, body, worker = _send_fields("Orders"), b"pay 10", WORKER
    signed = {**fields, ACCESS_KEY: worker.access_key}
    signature = signature_of(signed, body, worker.secret_key)
    right = {**signed, SIGNATURE: signature}
    broken: dict[str, tuple[dict[str, str], bytes]] = {
        "another body": (right, b"pay 99"),
        "no body": (right, b""),
        "a longer body": (right, body + b"0"),
        "another topic": ({**right, "b": "Sends"}, body),
        "one more field": ({**right, "z": "1"}, body),
        "a field less": ({name: value for name, value in right.items() if name != "g"}, body),
        "another user": ({**right, ACCESS_KEY: ADMIN.access_key}, body),
        "a short signature": ({**right, SIGNATURE: signature[:-4]}, body),
        "a signature and more": ({**right, SIGNATURE: signature + "A"}, body),
        "the signature in capitals": ({**right, SIGNATURE: signature.upper()}, body),
        "an empty signature": ({**right, SIGNATURE: ""}, body),
        "no signature": (signed, body),
        "no Base64": ({**right, SIGNATURE: "\u00fc\u4e1c\n"}, body),
        "the secret of another": ({**signed, SIGNATURE: signature_of(signed, body, OPEN.secret_key)}, body),
        "an empty secret": ({**signed, SIGNATURE: signature_of(signed, body, "\0")}, body),
        "of the fields alone": ({**signed, SIGNATURE: signature_of(signed, b"", worker.secret_key)}, body),
        "of the body alone": ({**signed, SIGNATURE: signature_of({}, body, worker.secret_key)}, body),
        # Fields that may be unsigned are those of clients of RocketMQ, and only they.
        "an unsigned field": ({**right, "SecurityTokens": "1"}, body),
    }
    return {
        name: RemotingCommand(code=Code.SEND_MESSAGE_V2, opaque=7, ext_fields=sent, body=content)
        for name, (sent, content) in broken.items()
    }


@pytest.mark.parametrize("name", _tampered())
def test_a_tampered_request_is_refused(attacked: Attacked, name: str) -> None:
    with attacked.connect() as connection:
        answer = answer_of(connection.send(_tampered()[name]))
    assert _is_wrong_signature(answer), answer


def test_an_unsigned_request_is_refused_on_a_connection_that_has_signed(attacked: Attacked) -> None:
    fields = _send_fields("Orders")
    with attacked.connect(WORKER.identity) as connection:
        for _ in range(3):  # the later ones take the fast path of the kernel
            assert answer_of(connection.call(Code.SEND_MESSAGE_V2, fields, b"x")).code == 0
        unsigned = RemotingCommand(code=Code.SEND_MESSAGE_V2, opaque=900, ext_fields=fields, body=b"x")
        refused = answer_of(connection.send(unsigned))
        assert refused.is_refusal, refused
        assert answer_of(connection.call(Code.SEND_MESSAGE_V2, fields, b"x")).code == 0
        # Nor does an administrator's signature before it help.
        with attacked.connect() as admin:
            other = admin.request(Code.GET_BROKER_CONFIG)
        assert answer_of(connection.send(other)).code == 0
        assert answer_of(connection.call(Code.GET_BROKER_CONFIG)).is_refusal


def test_a_one_way_send_without_signature_stores_nothing(attacked: Attacked) -> None:
    offset = {"topic": "Orders", "queueId": "0"}
    with attacked.connect() as admin, attacked.connect(UNSIGNED) as stranger:
        assert answer_of(admin.call(Code.SEND_MESSAGE_V2, _send_fields("Orders"), b"x")).code == 0
        before = admin.call(Code.GET_MAX_OFFSET, offset)
        oneway = RemotingCommand(
            code=Code.SEND_MESSAGE_V2, opaque=1, flag=2, ext_fields=_send_fields("Orders"), body=b"x"
        )
        assert stranger.send(oneway, timeout_s=0.3) is None
        # Its answer shows that the one before it on the connection was handled.
        assert answer_of(stranger.call(Code.GET_MAX_OFFSET, offset)).is_refusal
        after = admin.call(Code.GET_MAX_OFFSET, offset)
    assert before is not None and after is not None
    assert before.ext_fields == after.ext_fields


def test_oversize_fields_are_refused_and_cost_little(attacked: Attacked) -> None:
    huge = "x" * 1_000_000
    large = {f"field{number}": "y" * 20 for number in range(20_000)}
    before = _memory(attacked.broker.pid)
    logged = len(attacked.broker.log_text())
    for identity in (Identity("huge key", huge, "secret"), Identity("huge secret", "adminuser", huge)):
        for _ in range(5):
            assert _ask_or_closed(attacked, identity, {"topic": "Orders"}) is not True
            assert _ask_or_closed(attacked, identity, {"topic": huge}) is not True
            assert _ask_or_closed(attacked, identity, large) is not True
    assert _memory(attacked.broker.pid) - before < _MEMORY_BOUND_BYTES
    assert len(attacked.broker.log_text()) - logged < 100_000
    assert attacked.ask(ADMIN.identity, Code.GET_BROKER_CONFIG).code == 0


def _ask_or_closed(attacked: Attacked, identity: Identity, fields: Mapping[str, str]) -> bool:
    """Whether it was admitted."""
    try:
        return attacked.ask(identity, Code.GET_MAX_OFFSET, {"queueId": "0", **fields}).code == 0
    except ConnectionError:
        return False


# -- what only administrators may ----------------------------------------------------------------

_MANAGEMENT: Final = (
    *(Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_CONFIG),
    *range(Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.GET_BROKER_CLUSTER_ACL_CONFIG + 1),
    *range(Code.AUTH_CREATE_USER, Code.AUTH_LIST_ACL + 1),
)


@pytest.mark.parametrize("account", [WORKER, OPEN, NOBODY], ids=lambda account: account.access_key)
def test_ordinary_accounts_manage_nothing(attacked: Attacked, account: Any) -> None:
    """CVE-2024-23321, and the holes of RocketMQ that have no number."""
    mine = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "admin": "true",
        "username": account.access_key,
        "subject": f"User:{account.access_key}",
        "globalWhiteAddrs": "*",
    }
    entry = {"resource": "*", "actions": ["All"], "decision": "Allow"}
    body = {"userType": "Super", "password": account.secret_key, "policies": [{"entries": [entry]}]}
    for code in _MANAGEMENT:
        answer = attacked.ask(account.identity, code, mine, json.dumps(body).encode())
        assert answer.is_refusal, (code, answer)
    assert attacked.ask(account.identity, Code.GET_BROKER_CONFIG).is_refusal
    assert attacked.ask(UNSIGNED, Code.GET_BROKER_CONFIG).is_refusal


_DANGEROUS: Final = {
    # CVE-2023-33246: a command line was made of these.
    "rocketmqHome": "-c $@|sh . echo touch {folder}/escaped;",
    "brokerConfigPath": "{folder}/escaped",
    "configBlackList": "none",
    "storePathRootDir": "{folder}/escaped",
    "storePathCommitLog": "{folder}/escaped",
    "accessAuditLogPath": "{folder}/escaped",
    "accessLimitsPath": "{folder}/escaped",
    # Access control itself.
    "aclEnable": "false",
    "authenticationEnabled": "false",
    "authorizationEnabled": "false",
    "authenticationWhitelist": "25,26",
    "authorizationWhitelist": "25,26",
    "initAuthenticationUser": '{{"username":"intruder","password":"intrudersecret"}}',
    "innerClientAuthenticationCredentials": '{{"accessKey":"intruder","secretKey":"intrudersecret"}}',
    "accessOpenConfig": "true",
    "accessLockoutAttempts": "7",
    "haAllowedAddresses": "0.0.0.0/0",
}


@pytest.mark.parametrize("key", _DANGEROUS)
def test_no_request_changes_paths_or_access_control(attacked: Attacked, tmp_path: Path, key: str) -> None:
    """Not even an administrator's: whoever has the keys has not got the machine."""
    value = _DANGEROUS[key].format(folder=tmp_path)
    before = attacked.config()
    files = _config_files(attacked.home)
    answer = attacked.ask(ADMIN.identity, Code.UPDATE_BROKER_CONFIG, {}, f"{key}={value}\n".encode())
    assert answer.code != 0, answer
    assert attacked.config() == before
    assert _config_files(attacked.home) == files
    assert not (tmp_path / "escaped").exists()


def test_a_forbidden_key_among_others_changes_none(attacked: Attacked) -> None:
    before = attacked.config()
    body = b"maxMessageSize=1234567\nbrokerConfigPath=/tmp/x\n"
    assert attacked.ask(ADMIN.identity, Code.UPDATE_BROKER_CONFIG, {}, body).code != 0
    assert attacked.config() == before


def test_filter_servers_are_never_started(attacked: Attacked) -> None:
    """The other half of CVE-2023-33246; there are no filter servers here."""
    attacked.ask(ADMIN.identity, Code.UPDATE_BROKER_CONFIG, {}, b"filterServerNums=1\n")
    children = Path(f"/proc/{attacked.broker.pid}/task/{attacked.broker.pid}/children")
    assert children.read_text().split() == []


def _config_files(home: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in home.rglob("*.conf")}


# -- names that are paths ------------------------------------------------------------------------

_PATHS: Final = (
    *("../escaped", "../../../../escaped", "/escaped", "a/../../escaped", "..\\escaped", "%RETRY%../escaped"),
    *("escaped\0", "./escaped", "escaped/../..", "..", "~/escaped", "file:///escaped"),
)


@pytest.mark.parametrize("name", _PATHS)
def test_names_of_topics_and_groups_are_no_paths(attacked: Attacked, name: str) -> None:
    """CVE-2019-17572: by every request that makes a topic, a group or a queue."""
    outside = _outside(attacked.home)
    with attacked.connect() as admin:
        for code, fields, body in _creations(name):
            try:
                admin.call(code, fields, body, timeout_s=5)
            except ConnectionResetError:  # the frame itself was refused
                pytest.fail(f"the connection ended at {code}")
        store = attacked.home / "store"
        roots = [path for path in attacked.home.rglob("*") if path.name == "commitlog"]
        assert roots, f"no store below {store}"
    assert [path for path in attacked.home.rglob("*escaped*") if path.is_dir()] == []
    assert _outside(attacked.home) == outside
    assert attacked.ask(ADMIN.identity, Code.GET_BROKER_CONFIG).code == 0


def _outside(home: Path) -> set[Path]:
    """What is beside the folder of the broker, and at the places that the names lead to."""
    return {*home.parent.iterdir(), *(path for path in Path("/").iterdir() if "escaped" in path.name)}


def _creations(name: str) -> Iterator[tuple[int, dict[str, str], bytes]]:
    queues = {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    create = {"topic": name, "defaultTopic": "TBW102", "topicSysFlag": "0", "order": "false", **queues}
    both = {"consumerGroup": name, "topic": name, "queueId": "0"}
    yield Code.UPDATE_AND_CREATE_TOPIC, create, b""
    topics = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
    yield Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps({"topicConfigList": topics}).encode()
    yield Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": name}).encode()
    groups = {"groupConfigList": [{"groupName": name}]}
    yield Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, json.dumps(groups).encode()
    yield Code.SEND_MESSAGE_V2, _send_fields(name, name), b"x"
    yield Code.SEND_MESSAGE_V2, _send_fields(f"%RETRY%{name}", name), b"x"
    yield Code.SEND_BATCH_MESSAGE, {**_send_fields(name, name), "m": "true"}, b"x"
    delayed = {
        **_send_fields("Orders"),
        "i": f"DELAY\x011\x02REAL_TOPIC\x01{name}\x02INNER_MULTI_DISPATCH\x01{name}",
    }
    yield Code.SEND_MESSAGE_V2, delayed, b"x"
    back = {"offset": "0", "group": name, "delayLevel": "1", "originTopic": name}
    yield Code.CONSUMER_SEND_MSG_BACK, back, b""
    yield Code.UPDATE_CONSUMER_OFFSET, {**both, "commitOffset": "1"}, b""
    yield Code.UPDATE_CONSUMER_OFFSET, {**both, "topic": "Orders", "commitOffset": "1"}, b""
    pop = {
        **both,
        "maxMsgNums": "1",
        "invisibleTime": "1000",
        "pollTime": "0",
        "bornTime": "1",
        "initMode": "0",
    }
    yield Code.POP_MESSAGE, pop, b""
    yield Code.POP_MESSAGE, {**pop, "topic": "Orders"}, b""
    beat = {"groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    whole = {**beat, "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": []}
    yield Code.HEART_BEAT, {}, json.dumps({"clientID": "c", "consumerDataSet": [whole]}).encode()
    reset = {"topic": name, "group": name, "timestamp": "0", "isForce": "true"}
    yield Code.INVOKE_BROKER_TO_RESET_OFFSET, reset, b""
    yield Code.CLONE_GROUP_OFFSET, {"srcGroup": "Workers", "destGroup": name, "topic": name}, b""
    mode = {"topic": name, "consumerGroup": name, "mode": "POP", "popShareQueueNum": 0}
    yield Code.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode()
    yield Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": name, "topic": name, "readable": "true"}, b""
    yield Code.DELETE_TOPIC_IN_BROKER, {"topic": name}, b""
    yield Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": name, "removeOffset": "true"}, b""


@pytest.mark.parametrize("path", ["/etc/passwd", "../../escaped.yml", "/tmp/escaped.yml"])
def test_white_addresses_go_to_no_other_file(attacked: Attacked, path: str) -> None:
    if attacked.rules == AUTH:
        pytest.skip("a request of RocketMQ 4")
    fields = {"globalWhiteAddrs": "10.10.10.10", "aclFileFullPath": path}
    answer = attacked.ask(ADMIN.identity, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields)
    assert answer.code != 0, answer
    assert not Path("/tmp/escaped.yml").exists()


# -- secrets -------------------------------------------------------------------------------------


def test_secrets_are_only_where_they_must_be(attacked: Attacked) -> None:
    """After a use of everything: not in the answers that show the configuration or lists, not in logs, and
    not in a file but those that hold the accounts."""
    secrets = [*(account.secret_key for account in ACCOUNTS), "othersecret"]
    for identity in (ADMIN.identity, WORKER.identity, Identity("wrong", "adminuser", "othersecret")):
        for code in _LISTS:
            with attacked.connect(identity) as connection:
                answer = connection.call(code)
                assert answer is not None
                text = f"{answer.remark} {answer.ext_fields} {answer.body!r}"
                assert not [secret for secret in secrets if secret in text], Code(code)
    wait_until(lambda: '"wrong signature"' in attacked.audit_text(), timeout_s=10, what="the audit log")
    shown = [
        (str(path), secret)
        for path in attacked.home.rglob("*")
        if path.is_file() and path.name.removesuffix(".bak") not in _HOLDERS
        for secret in secrets
        if path.stat().st_size < 4_000_000 and secret.encode() in path.read_bytes()
    ]
    assert shown == []


_LISTS: Final = (
    *(Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_BROKER_CONFIG),
    *(Code.GET_BROKER_RUNTIME_INFO, Code.GET_ALL_CONSUMER_OFFSET, Code.AUTH_LIST_ACL),
    Code.GET_BROKER_CLUSTER_ACL_INFO,
)
_HOLDERS: Final = ("broker.conf", "plain_acl.yml", "users.json")
"""What holds secrets; each may have a backup beside it."""


def test_files_with_secrets_are_the_owners_alone(attacked: Attacked) -> None:
    if attacked.rules == PLAIN:
        answer = attacked.ask(ADMIN.identity, Code.UPDATE_AND_CREATE_ACL_CONFIG, _NEW_ACCOUNT)
        assert answer.code == 0, answer
    # The configuration was written by the test; the mode of that file is its owner's choice.
    found = [path for path in attacked.home.rglob("*") if path.name.removesuffix(".bak") in _HOLDERS[1:]]
    assert found
    assert [path for path in found if path.stat().st_mode & 0o077] == []


_NEW_ACCOUNT: Final = {"accessKey": "createduser", "secretKey": "createdsecret", "admin": "false"}


# -- wrong logins --------------------------------------------------------------------------------


class _Flood(threading.Thread):
    """10,000 wrong logins/s from 127.0.0.1, or fewer where the broker does not take as many."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._batch = b"".join(_wrong_login(number).encode() for number in range(_BATCH))
        self._end = threading.Event()
        self.sent = 0

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        while not self._end.is_set():
            due = time.monotonic() + _BATCH / _RATE
            with suppress(OSError):  # the end
                self._socket.sendall(self._batch)
                self.sent += _BATCH
            self._end.wait(max(0.0, due - time.monotonic()))

    def _read(self) -> None:
        with suppress(OSError):
            while self._socket.recv(1 << 20):
                pass

    def stop(self) -> None:
        self._end.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join(30)
        self._socket.close()


def _wrong_login(number: int) -> RemotingCommand:
    identity = (
        Identity("", f"guess{number}", "guessedsecret") if number % 2 else Identity("", "adminuser", "bad")
    )
    fields = {**_send_fields("Orders"), ACCESS_KEY: identity.access_key}
    fields[SIGNATURE] = signature_of(fields, b"x", identity.secret_key)
    return RemotingCommand(code=Code.SEND_MESSAGE_V2, opaque=number, ext_fields=fields, body=b"x")


@pytest.mark.parametrize("rules", [PLAIN, AUTH])
def test_a_flood_of_wrong_logins_locks_its_address_out_and_nobody_else(rules: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        attacked = _launched(rules, tmp_path)
        stack.enter_context(attacked.broker)
        before = _memory(attacked.broker.pid)
        client = stack.enter_context(
            SignedConnection(attacked.broker.address, WORKER.identity, source="127.0.0.2")
        )
        flood = _Flood(attacked.broker.port)
        flood.start()
        stack.callback(flood.stop)
        waits = _timed_sends(client, seconds=_FLOOD_S)
        flood.stop()
        rate = flood.sent / _FLOOD_S
        print(f"{rate:.0f} wrong logins/s; {len(waits)} sends beside them, the slowest {max(waits):.3f} s")
        assert rate > 1_000, "no flood"
        assert len(waits) > 3
        assert max(waits) < 3
        assert _memory(attacked.broker.pid) - before < _MEMORY_BOUND_BYTES
        locked = attacked.ask(ADMIN.identity, Code.GET_BROKER_CONFIG)
        assert locked.code == 16 and "too many wrong logins" in (locked.remark or ""), locked
        assert len(attacked.broker.log_text()) < 200_000
        assert len(attacked.audit_text()) < 2_000_000


def _timed_sends(client: SignedConnection, *, seconds: float) -> list[float]:
    waits: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        answer = answer_of(client.call(Code.SEND_MESSAGE_V2, _send_fields("Orders"), b"x", timeout_s=10))
        assert answer.code == 0, answer
        waits.append(time.monotonic() - begin)
    return waits


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
