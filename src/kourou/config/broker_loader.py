"""A broker's configuration from its file, the TLS file, options and the environment.

Order of weight: options, file, environment, defaults. A file may serve name server and broker.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.config.broker import MASTER_ID, SLAVE, BrokerConfig, split_values
from kourou.config.component import attributes_of
from kourou.config.home import data_home
from kourou.config.keys import KeyTable
from kourou.config.properties_file import read_properties
from kourou.config.settings import Settings, SettingsReader
from kourou.config.tls_file import read_tls_file

NAMESRV_ADDR: Final = "NAMESRV_ADDR"
_PATHS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
# What documents of RocketMQ 3 and 4 write and take for a number of messages.
_MISREAD_QUEUE_SIZE: Final = 300_000
_UNIT_BYTES: Final = 20


def load_broker_config(
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> tuple[BrokerConfig, list[str]]:
    """Read the configuration; also returns notes for the operator, one line each.

    `overrides` are RocketMQ keys with their text, from options. ConfigError holds every problem.
    """
    environ = environ or {}
    reader = SettingsReader(BrokerConfig.known_keys(), _other_keys)
    if environ.get(NAMESRV_ADDR):
        reader.read_values({"namesrvAddr": environ[NAMESRV_ADDR]}, f"environment {NAMESRV_ADDR}")
    if path is not None:
        reader.read_file(read_properties(path), str(path))
    read_tls_file(reader)
    reader.read_values(overrides or {}, "option")
    _check_together(reader.settings, "option" if path is None else str(path))
    reader.settings.check()
    _complete(reader.settings, path, environ)
    attributes, without_effect = split_values(reader.settings.values)
    config = BrokerConfig(
        **attributes_of(BrokerConfig, attributes),
        without_effect=without_effect,
        extra=reader.settings.extra,
    )
    return config, reader.settings.notes


def _check_together(settings: Settings, source: str) -> None:
    """What no key alone can know."""
    values, notes = settings.values, settings.notes
    is_slave = values.get("brokerRole") == SLAVE
    broker_id = values.get("brokerId", MASTER_ID)
    if is_slave and broker_id == MASTER_ID:
        settings.problems.append(f"{source}: brokerId={MASTER_ID}: a slave's must be greater than 0")
    elif not is_slave and broker_id != MASTER_ID:
        notes.append(f"{source}: brokerId={broker_id} has no effect: the id of a master is {MASTER_ID}")
        values["brokerId"] = MASTER_ID
    if values.get("fetchNamesrvAddrByAddressServer") and not values.get("rmqAddressServerDomain"):
        settings.problems.append(
            f"{source}: fetchNamesrvAddrByAddressServer=true: set rmqAddressServerDomain too, the host to ask"
        )
    if values.get("mappedFileSizeConsumeQueue") == _MISREAD_QUEUE_SIZE:
        units = _MISREAD_QUEUE_SIZE // _UNIT_BYTES
        notes.append(
            f"{source}: mappedFileSizeConsumeQueue={_MISREAD_QUEUE_SIZE} is in bytes: {units} messages"
        )


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


@functools.cache
def _other_keys() -> KeyTable:
    """Keys of every other component; loaded when a key is not a broker's."""
    from kourou.config.namesrv import namesrv_keys
    from kourou.config.other_keys import OTHER_KEYS

    return KeyTable([*namesrv_keys(), *OTHER_KEYS])
