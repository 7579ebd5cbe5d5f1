"""A broker's configuration from its file, the TLS file, options and the environment.

Order of precedence: options, file, environment, defaults. A file may serve name server and broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.config.access_settings import access_problem
from kourou.config.broker import MASTER_ID, SLAVE, BrokerConfig, split_values
from kourou.config.component import attributes_of
from kourou.config.home import ROCKETMQ_HOME, data_home
from kourou.config.properties_file import read_properties
from kourou.config.settings import Settings, SettingsReader
from kourou.config.tls_file import read_tls_file

NAMESRV_ADDR: Final = "NAMESRV_ADDR"
_PATHS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
# Documents of RocketMQ 3 and 4 use this value as a number of messages.
_MISREAD_QUEUE_SIZE: Final = 300_000
_UNIT_BYTES: Final = 20


def load_broker_config(
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    option_names: Mapping[str, str] | None = None,
    notes_unused: bool = False,
) -> tuple[BrokerConfig, list[str]]:
    """Read the configuration; also returns notes for the operator, one line each.

    `overrides` are RocketMQ keys with their text, from options; `option_names` gives the option of a
    key that was not set by --set; with `notes_unused`, entries of the file that these override are noted.
    ConfigError holds every problem.
    """
    environ = environ or {}
    reader = SettingsReader(BrokerConfig.known_keys(), BrokerConfig.other_keys)
    if environ.get(NAMESRV_ADDR):
        reader.read_values({"namesrvAddr": environ[NAMESRV_ADDR]}, f"environment {NAMESRV_ADDR}")
    if path is not None:
        reader.read_file(read_properties(path), str(path))
    read_tls_file(reader)
    reader.read_options(overrides or {}, option_names or {}, notes_unused=notes_unused)
    _check_together(reader.settings)
    # The user's data folder need not be usable: a broker with a store elsewhere logs to the console.
    reader.settings.check_folder("rocketmqHome", environ.get(ROCKETMQ_HOME))
    reader.settings.check_folder("storePathRootDir")
    reader.settings.check()
    _complete(reader.settings, path, environ)
    attributes, without_effect = split_values(reader.settings.values)
    config = BrokerConfig(
        **attributes_of(BrokerConfig, attributes),
        without_effect=without_effect,
        extra=reader.settings.extra,
    )
    return config, reader.settings.notes


def _check_together(settings: Settings) -> None:
    """Checks across keys, and notes about values that are accepted but not honoured in full."""
    values, given, notes = settings.values, settings.given, settings.notes
    problem = access_problem(
        acl=bool(values.get("aclEnable")),
        authentication=bool(values.get("authenticationEnabled")),
        authorization=bool(values.get("authorizationEnabled")),
    )
    if problem is not None:
        settings.problems.append(problem)
    if values.get("fetchNamesrvAddrByAddressServer") and not values.get("rmqAddressServerDomain"):
        settings.problems.append(
            f"{given['fetchNamesrvAddrByAddressServer']}: set rmqAddressServerDomain too, the host to ask"
        )
    is_slave = values.get("brokerRole") == SLAVE
    broker_id = int(str(values.get("brokerId", MASTER_ID)))
    if values.get("failoverEtcdEndpoints"):
        _check_failover(settings)
    elif is_slave and broker_id <= MASTER_ID:
        where = given["brokerId"] if "brokerId" in given else given["brokerRole"]
        settings.problems.append(
            f"{where}: a slave needs a brokerId above {MASTER_ID}, which is the master's"
        )
    elif not is_slave and broker_id != MASTER_ID:
        notes.append(f"{given['brokerId']} has no effect: the id of a master is {MASTER_ID}")
        values["brokerId"] = MASTER_ID
    if values.get("mappedFileSizeConsumeQueue") == _MISREAD_QUEUE_SIZE:
        units = _MISREAD_QUEUE_SIZE // _UNIT_BYTES
        notes.append(f"{given['mappedFileSizeConsumeQueue']} is in bytes: {units} messages")


def _check_failover(settings: Settings) -> None:
    values, given = settings.values, settings.given
    if values.get("brokerRole") == SLAVE:
        settings.problems.append(
            f"{given['brokerRole']}: a member of a fail-over set finds its role by itself; give SYNC_MASTER "
            "or ASYNC_MASTER, which says how it acknowledges when it is master"
        )
    if values.get("haMasterAddress"):
        settings.problems.append(
            f"{given['haMasterAddress']}: a member of a fail-over set finds its master in etcd; remove this "
            "key"
        )
    if values.get("syncFromLastFile"):
        settings.problems.append(
            f"{given['syncFromLastFile']}: a member of a fail-over set has the whole log; remove this key"
        )
    if bool(values.get("failoverEtcdUser")) != bool(values.get("failoverEtcdPassword")):
        name = "failoverEtcdUser" if values.get("failoverEtcdUser") else "failoverEtcdPassword"
        settings.problems.append(f"{given[name]}: give failoverEtcdUser and failoverEtcdPassword, or neither")
    if "brokerId" in given:
        settings.notes.append(f"{given['brokerId']} has no effect: a member's number is given by etcd")
        values["brokerId"] = MASTER_ID


def _complete(settings: Settings, path: Path | None, environ: Mapping[str, str]) -> None:
    """Fill in paths that depend on the home folder, and make every path absolute."""
    values = settings.values
    home = Path(str(values.get("rocketmqHome") or data_home(environ))).absolute()
    values["rocketmqHome"] = str(home)
    values["storePathRootDir"] = str(Path(str(values.get("storePathRootDir") or home / "store")).absolute())
    for name in _PATHS:
        if values.get(name):
            folders = (Path(folder.strip()).absolute() for folder in str(values[name]).split(","))
            values[name] = ",".join(map(str, folders))
    # Changes go back to the file that was read, whatever an entry in it says, as in Apache.
    stored = path or values.get("brokerConfigPath") or home / "conf" / "broker.properties"
    values["brokerConfigPath"] = str(Path(str(stored)).absolute())
