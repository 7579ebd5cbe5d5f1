"""BrokerConfig: from a file, from options, printed, changed by a request and saved."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.config import BrokerConfig, load_broker_config
from kourou.config.broker import without_effect_keys
from kourou.config.component import ComponentConfig
from kourou.config.keys import ValueType, attribute_name, settings_of
from kourou.config.namesrv import NamesrvConfig
from kourou.config.properties import parse_properties, properties_dict
from kourou.config.properties_file import read_properties
from kourou.config.remoting import RemotingSettings
from kourou.errors import ConfigError, UnknownKeyError

ENVIRON = {"HOME": "/home/ann"}
APACHE = Path(__file__).with_name("apache_broker_config.txt")


def load(
    tmp_path: Path, text: str, environ: dict[str, str] = ENVIRON, **overrides: str
) -> tuple[BrokerConfig, list[str]]:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return load_broker_config(path, overrides, environ=environ)


# -- keys and attributes --------------------------------------------------------------------------


PYTHON_TYPES = {
    ValueType.BOOL: "bool",
    ValueType.INT: "int",
    ValueType.LONG: "int",
    ValueType.STRING: "str",
    ValueType.ENUM: "str",
}
# Filled in by BrokerConfig, so that they are never None.
FILLED_IN = {"broker_name", "broker_ip1", "broker_ip2"}


@pytest.mark.parametrize("config_type", [BrokerConfig, NamesrvConfig])
def test_an_attribute_has_the_type_of_its_key(config_type: type) -> None:
    keys = dict(settings_of(config_type).values())
    for field in dataclasses.fields(config_type):
        if field.name in keys:
            key = keys[field.name]
            optional = " | None" if key.default is None and field.name not in FILLED_IN else ""
            assert field.type == PYTHON_TYPES[key.type] + optional, field.name


def test_attributes_are_the_keys_in_pythons_spelling() -> None:
    sockets = settings_of(RemotingSettings)
    for name, (attribute, _) in settings_of(BrokerConfig).items():
        assert name in sockets or attribute == attribute_name(name)


def test_keys_without_an_attribute_say_what_happens_instead() -> None:
    assert [
        key.name for key in without_effect_keys() if not key.instead or key.name in settings_of(BrokerConfig)
    ] == []


def test_defaults_are_those_of_the_keys() -> None:
    config = BrokerConfig()
    found_out = {
        *("broker_name", "broker_ip1", "broker_ip2", "fast_listen_port", "ha_listen_port"),
        "min_in_sync_replicas",
    }
    for attribute, key in settings_of(BrokerConfig).values():
        assert attribute in found_out or getattr(config, attribute) == key.default, key.name
    assert {field.name for field in dataclasses.fields(BrokerConfig)} - {
        attribute for attribute, _ in settings_of(BrokerConfig).values()
    } == {"extra", "without_effect"}


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("brokerIP1", "broker_ip1"),
        ("autoCreateTopicEnable", "auto_create_topic_enable"),
        ("mappedFileSizeCommitLog", "mapped_file_size_commit_log"),
        ("checkCRCOnRecover", "check_crc_on_recover"),
        ("haListenPort", "ha_listen_port"),
    ],
)
def test_spelling(key: str, attribute: str) -> None:
    assert attribute_name(key) == attribute


# -- what is found out -----------------------------------------------------------------------------


def test_name_and_addresses_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host-7")
    monkeypatch.setattr("kourou.config.host.local_address", lambda: "10.1.2.3")
    config = BrokerConfig()
    assert (config.broker_name, config.broker_ip1, config.broker_ip2) == ("host-7", "10.1.2.3", "10.1.2.3")


def test_slaves_connect_one_port_up() -> None:
    assert BrokerConfig(listen_port=20911).ha_listen_port == 20912
    assert BrokerConfig(listen_port=20911, ha_listen_port=7).ha_listen_port == 7


def test_slaves_of_apache_copy_topics_two_ports_down() -> None:
    assert BrokerConfig(listen_port=20911).fast_listen_port == 20909
    assert BrokerConfig(listen_port=20911, fast_listen_port=0).fast_listen_port == 0
    assert BrokerConfig(listen_port=1).fast_listen_port == 0
    assert BrokerConfig(listen_port=0).ha_listen_port is None


def test_a_broker_that_listens_on_one_address_advertises_it() -> None:
    assert BrokerConfig(bind_address="127.0.0.1").broker_ip1 == "127.0.0.1"
    assert BrokerConfig(bind_address="127.0.0.1", broker_ip1="10.0.0.9").broker_ip2 == "10.0.0.9"


def test_without_a_file_everything_lies_in_the_users_data_folder() -> None:
    config, notes = load_broker_config(None, environ=ENVIRON)
    assert notes == []
    assert (config.bind_address, config.listen_port, config.broker_id) == ("0.0.0.0", 10911, 0)
    assert config.store_path_root_dir == "/home/ann/.local/share/kourou/store"
    assert config.broker_config_path == "/home/ann/.local/share/kourou/conf/broker.properties"


# -- name servers ----------------------------------------------------------------------------------


def test_name_servers_come_from_the_option_then_the_file_then_the_environment(tmp_path: Path) -> None:
    environ = {**ENVIRON, "NAMESRV_ADDR": "env:1"}
    assert load(tmp_path, "", environ)[0].namesrv_addr == "env:1"
    assert load(tmp_path, "namesrvAddr=file:1", environ)[0].namesrv_addr == "file:1"
    assert load(tmp_path, "namesrvAddr=file:1", environ, namesrvAddr="a:1;b:2")[0].namesrv_addr == "a:1;b:2"


def test_a_wrong_name_server_in_the_environment_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"^environment NAMESRV_ADDR: namesrvAddr=nowhere: must be host:port"
    ):
        load_broker_config(None, environ={"NAMESRV_ADDR": "nowhere"})


def test_the_address_service_needs_a_host(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set rmqAddressServerDomain too"):
        load(tmp_path, "fetchNamesrvAddrByAddressServer=true")
    config, notes = load(
        tmp_path, "fetchNamesrvAddrByAddressServer=true\nrocketmq.namesrv.domain=ns.example.com"
    )
    assert (config.rmq_address_server_domain, config.rmq_address_server_sub_group) == (
        "ns.example.com",
        "nsaddr",
    )
    assert notes == []


# -- files of others -------------------------------------------------------------------------------


def test_a_file_of_rocketmq_4_documents(tmp_path: Path) -> None:
    text = """\
brokerClusterName=rocketmq-cluster
brokerName=broker-a
brokerId=0
namesrvAddr=rocketmq-nameserver1:9876;rocketmq-nameserver2:9876
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
listenPort=10911
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
diskMaxUsedSpaceRatio=88
storePathRootDir=/usr/local/rocketmq/store
storePathCommitLog=/usr/local/rocketmq/store/commitlog
storePathConsumeQueue=/usr/local/rocketmq/store/consumequeue
storeCheckpoint=/usr/local/rocketmq/store/checkpoint
maxMessageSize=65536
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
checkTransactionMessageEnable=false
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
"""
    config, notes = load(tmp_path, text)
    path = tmp_path / "broker.conf"
    assert config.mapped_file_size_consume_queue == 300_000
    assert config.disk_max_used_space_ratio == 88
    assert (config.max_message_size, config.file_reserved_time) == (65_536, 120)
    assert [note.partition(" ")[0] for note in notes] == [
        f"{path}:{line}:" for line in (16, 17, 21, 22, 23)
    ] + [f"{path}:12:"]
    assert notes[-1].endswith(": mapedFileSizeConsumeQueue=300000 is in bytes: 15000 messages")
    texts = properties_dict(parse_properties(config.to_properties()))
    assert texts["storePathConsumeQueue"] == "/usr/local/rocketmq/store/consumequeue"
    assert texts["sendMessageThreadPoolNums"] == "128"


def test_what_apache_prints_can_be_loaded(tmp_path: Path) -> None:
    config, notes = load(tmp_path, APACHE.read_text())
    assert [note for note in notes if "unknown" in note] == []
    assert config.broker_name == "broker-a"


def test_a_config_request_shows_every_key_that_apache_shows() -> None:
    printed = properties_dict(parse_properties(BrokerConfig(namesrv_addr="a:1").to_properties()))
    # Without a default, or in the other version only, or a spelling of old.
    absent = {"storePathRootDir", "storePathCommitLog", "rocketmqHome", "haListenPort", "brokerConfigPath"}
    table = BrokerConfig.known_keys()
    for name in properties_dict(read_properties(APACHE)):
        key = table.find(name)
        assert key is not None, name
        assert key.name in printed or key.name in absent or key.default is None, name


# -- wrong values ----------------------------------------------------------------------------------


def test_all_problems_are_reported_together_with_file_line_key_value_and_what_is_allowed(
    tmp_path: Path,
) -> None:
    text = (
        "brokerPermission=99\nflushDiskType=SYNC\ndeleteWhen=4am\nnamesrvAddr=localhost\n"
        "fetchNamesrvAddrByAddressServer=true\nmessageDelayLevel=1s soon\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    path = tmp_path / "broker.conf"
    assert caught.value.problems == (
        f"{path}:1: brokerPermission=99: must be a whole number from 0 to 15",
        f"{path}:2: flushDiskType=SYNC: must be ASYNC_FLUSH or SYNC_FLUSH",
        f"{path}:3: deleteWhen=4am: must be hours from 0 to 23, as in 04 or 04;16",
        f"{path}:4: namesrvAddr=localhost: must be host:port, several separated by ; as in "
        "127.0.0.1:9876;192.168.0.1:9876",
        f"{path}:6: messageDelayLevel=1s soon: must be numbers with s, m, h or d, as in 1s 5s 1m",
        f"{path}:5: fetchNamesrvAddrByAddressServer=true: set rmqAddressServerDomain too, the host to ask",
    )


def test_the_id_of_a_master_is_zero_whatever_the_file_says(tmp_path: Path) -> None:
    config, notes = load(tmp_path, "brokerId=3")
    assert config.broker_id == 0
    assert notes == [f"{tmp_path / 'broker.conf'}:1: brokerId=3 has no effect: the id of a master is 0"]


def test_an_unknown_key_is_a_note_with_the_nearest_known_one(tmp_path: Path) -> None:
    _, notes = load(tmp_path, "autoCreateTopicEnabled=false\nkvConfigPath=/x")
    assert notes == [
        f"{tmp_path / 'broker.conf'}:1: unknown key autoCreateTopicEnabled is ignored; "
        "did you mean autoCreateTopicEnable?"
    ]


def test_a_clamped_value_is_used_with_a_word(tmp_path: Path) -> None:
    config, notes = load(tmp_path, "registerNameServerPeriod=1000")
    assert config.register_name_server_period == 10_000
    assert notes == [
        f"{tmp_path / 'broker.conf'}:1: registerNameServerPeriod=1000 is out of range; 10000 is used"
    ]


# -- printed, changed, saved -----------------------------------------------------------------------


def test_what_is_printed_can_be_loaded_without_a_word(tmp_path: Path) -> None:
    first, _ = load(tmp_path, "brokerName=a\nbrokerIP1=10.0.0.1\nsendMessageThreadPoolNums=3")
    (tmp_path / "broker.conf").write_text(first.to_properties())
    second, notes = load_broker_config(tmp_path / "broker.conf", environ=ENVIRON)
    assert [note for note in notes if "sendMessageThreadPoolNums" not in note] == []
    assert second.to_properties() == first.to_properties()


def test_the_important_part() -> None:
    config = BrokerConfig(broker_name="a", namesrv_addr="n:1", file_reserved_time=9, trace_on=False)
    texts = config.texts(important=True)
    assert {"brokerName", "namesrvAddr", "fileReservedTime", "brokerRole", "flushDiskType"} <= set(texts)
    assert texts["traceOn"] == "false" and "longPollingEnable" not in texts


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config, _ = load(tmp_path, "storePathRootDir=store\nstorePathCommitLog=a, b\nrocketmqHome=.")
    assert config.store_path_root_dir == str(tmp_path / "store")
    assert config.store_path_commit_log == f"{tmp_path}/a,{tmp_path}/b"


def test_a_request_changes_known_keys_with_and_without_effect(tmp_path: Path) -> None:
    config, _ = load(tmp_path, "# mine\nbrokerName=a\n")
    changes = {"brokerPermission": "4", "sendMessageThreadPoolNums": "9", "kvConfigPath": "/x"}
    changed = config.updated(changes)
    assert (changed.broker_permission, config.broker_permission) == (4, 6)
    assert changed.without_effect == {"sendMessageThreadPoolNums": 9}
    changed.persist(changes)
    assert (tmp_path / "broker.conf").read_text() == (
        "# mine\nbrokerName=a\nbrokerPermission=4\nsendMessageThreadPoolNums=9\n"
    )


def test_a_request_with_a_bad_value_changes_nothing() -> None:
    with pytest.raises(ConfigError, match="request: brokerPermission=x: must be a whole number"):
        BrokerConfig().updated({"brokerPermission": "x"})


def test_a_request_with_an_unknown_key_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        BrokerConfig().updated({"brokerPermission": "4", "flushDiskTyp": "SYNC_FLUSH"})
    assert caught.value.problems == ("unknown key flushDiskTyp; did you mean flushDiskType?",)
    # One that the file has is kept in step with the file.
    config, _ = load(tmp_path, "site=north")
    assert config.updated({"site": "south"}).extra == {"site": "south"}


def test_paths_and_tls_are_never_changed_by_a_request() -> None:
    always = {"configBlackList", "brokerConfigPath", "storePathRootDir", "tls.server.mode", "rocketmqHome"}
    assert always <= BrokerConfig().black_list
    assert "namesrvAddr" not in BrokerConfig().black_list


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    user = '{"username":"admin","password":"hush"}'
    config, _ = load(tmp_path, f"tls.server.keyPassword=hush\ninitAuthenticationUser={user}\n")
    assert isinstance(config, ComponentConfig)
    assert "hush" not in config.to_properties() + repr(config)


# -- made by a program ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"flush_disk_type": "BOGUS"}, "flush_disk_type='BOGUS': must be ASYNC_FLUSH or SYNC_FLUSH"),
        ({"listen_port": "abc"}, "listen_port='abc': must be a whole number from 0 to 65535"),
        ({"listen_port": 65_536}, "listen_port=65536: must be a whole number from 0 to 65535"),
        ({"listen_port": True}, "listen_port=True: must be a whole number from 0 to 65535"),
        ({"trace_on": "true"}, "trace_on='true': must be True or False"),
        ({"broker_name": 7}, "broker_name=7: must be text"),
        ({"flush_disk_type": None}, "flush_disk_type=None: must be ASYNC_FLUSH or SYNC_FLUSH"),
        ({"delete_when": "4am"}, "delete_when='4am': must be hours from 0 to 23, as in 04 or 04;16"),
        ({"tls_server_key_password": 7}, "tls_server_key_password=***: must be text"),
        ({"listenPort": 1}, "listenPort: BrokerConfig has no such attribute; did you mean listen_port?"),
        ({"listen_prt": 1}, "listen_prt: BrokerConfig has no such attribute; did you mean listen_port?"),
        ({"qqq": 1}, "qqq: BrokerConfig has no such attribute"),
        (
            {"brokerFastFailureEnable": True},
            "brokerFastFailureEnable: BrokerConfig has no such attribute: there are no thread pool queues; "
            "waiting requests are bounded per connection and by bytes",
        ),
    ],
)
def test_what_a_program_may_not_write(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(**values)
    assert caught.value.problems == (problem,)


def test_all_problems_of_a_program_together() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(**{"listen_port": -1, "trace_on": 1})
    assert len(caught.value.problems) == 2


def test_a_configuration_can_be_copied() -> None:
    config = BrokerConfig(listen_port=7)
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == dataclasses.replace(config)


# -- replication, which there is none of ------------------------------------------------------------


def test_a_slave_has_an_id_of_its_own(tmp_path: Path) -> None:
    config, notes = load(tmp_path, "brokerId=1\nbrokerRole=SLAVE")
    assert (config.is_slave, config.broker_id, notes) == (True, 1, [])
    path, problem = tmp_path / "broker.conf", "a slave needs a brokerId above 0, which is the master's"
    for text, where in (
        ("brokerRole=SLAVE", f"{path}:1: brokerRole=SLAVE"),
        ("brokerRole=SLAVE\nbrokerId=0", f"{path}:2: brokerId=0"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, text)
        assert caught.value.problems == (f"{where}: {problem}",)


def test_a_dledger_log_is_reported_as_missing(tmp_path: Path) -> None:
    text = "brokerRole=SYNC_MASTER\nslaveReadEnable=true\nhaListenPort=7\nenableDLegerCommitLog=true\n"
    config, notes = load(tmp_path, text)
    assert notes == [
        f"{tmp_path / 'broker.conf'}:4: enableDLegerCommitLog has no effect: there is no DLedger log; use a "
        "master with slaves"
    ]
    assert (config.broker_role, config.is_slave) == ("SYNC_MASTER", False)


# -- keys that promise protection -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["transactionOpMsgMaxSize", "transactionOpBatchInterval"])
def test_op_messages_that_are_not_gathered_say_so(tmp_path: Path, name: str) -> None:
    _, notes = load(tmp_path, f"{name}=50\n")
    (note,) = notes
    assert f"{name} has no effect: each half message gets its own op record" in str(note)


def test_each_attribute_is_read_somewhere() -> None:
    package = Path(kourou.__file__).parent
    readers = [path.read_text() for path in package.rglob("*.py")]
    words = Counter(word for text in readers for word in set(re.findall(r"\w+", text)))
    sockets = set(settings_of(RemotingSettings))
    unread = [
        name
        for name, (attribute, _) in settings_of(BrokerConfig).items()
        # Its own line is one; a key that is read by its name at the start (config) counts too.
        if name not in sockets and words[attribute] < 2 and words[name] < 2
    ]
    assert unread == []
