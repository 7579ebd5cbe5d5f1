"""From a broker's configuration to the settings of its parts: store, retention, limits of pulls.

Not here: the sockets (transport/from_config.py).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.config.broker import BrokerConfig
from kourou.config.host import memory_bytes
from kourou.errors import ConfigError
from kourou.protocol.message_id import encode_host
from kourou.store.delay_levels import parse_delay_levels
from kourou.store.kernel import KernelChoice
from kourou.store.read.transfer_limits import TransferLimits
from kourou.store.retention import RetentionConfig
from kourou.store.settings import FlushDiskType, MessageStoreConfig

_UNIT_BYTES: Final = 20
_HOUR_MS: Final = 3_600_000
_LESS_ON_SLAVES: Final = 10


@dataclass(slots=True)
class LiveConfig:
    """The configuration in force. It is replaced whole when keys change: read `current` each time."""

    current: BrokerConfig

    def get(self) -> BrokerConfig:
        """The same as a function."""
        return self.current


@dataclass(slots=True)
class KernelStatus:
    """Whether the compiled kernel is in use. Replaced when the kernel fails: read `current` each time."""

    current: KernelChoice

    def fail(self, during: str) -> None:
        """The kernel failed, and is not used any more."""
        self.current = KernelChoice(
            None,
            f"it failed during {during}",
            "see the broker's log for the traceback and report it; restart the broker",
        )


def store_config(config: BrokerConfig, store_host: bytes) -> MessageStoreConfig:
    """The store; `store_host` is the advertised address as records keep it."""
    return MessageStoreConfig(
        root=store_root(config),
        commit_log_folders=_folders(config.store_path_commit_log),
        read_only_commit_log_folders=_folders(config.read_only_commit_log_store_paths),
        commit_log_file_bytes=config.mapped_file_size_commit_log,
        consume_queue_file_bytes=_whole_units(config.mapped_file_size_consume_queue),
        index_slots=config.max_hash_slot_num,
        index_entries=config.max_index_num,
        index_enable=config.message_index_enable,
        flush_disk_type=FlushDiskType(config.flush_disk_type),
        max_message_bytes=config.max_message_size,
        store_host=store_host,
        delay_levels=parse_delay_levels(config.message_delay_level),
        check_crc_on_recover=config.check_crc_on_recover,
        max_transfer_bytes=config.max_transfer_bytes_per_pull,
        max_filter_units=config.max_filter_message_size // _UNIT_BYTES,
    )


def store_root(config: BrokerConfig) -> Path:
    """The folder of the store."""
    if not config.store_path_root_dir:
        raise ConfigError("storePathRootDir is not set; a broker needs a folder for its store")
    return Path(config.store_path_root_dir)


def store_host(config: BrokerConfig) -> bytes:
    """The advertised address as records keep it. A name in `brokerIP1` is looked up, which may wait."""
    try:
        found = socket.getaddrinfo(config.broker_ip1, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        # Without a brokerIP1 the address that is listened on is advertised.
        key = "bindAddress" if config.broker_ip1 == config.bind_address else "brokerIP1"
        raise ConfigError(
            f"{key}={config.broker_ip1}: the name cannot be resolved ({error.strerror}); set an address"
        ) from error
    # IPv4 first: older clients read no other.
    addresses = sorted((str(entry[4][0]) for entry in found), key=lambda address: ":" in address)
    return encode_host(addresses[0], config.listen_port)


def free_port(host: str) -> int:
    """A port on which nothing listens. Records and ids carry it, so it is chosen before the store opens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError(f"bindAddress={host}: cannot listen there: {error.strerror}") from error
        port: int = probe.getsockname()[1]
        return port


def retention_config(config: BrokerConfig) -> RetentionConfig:
    """When files of the log go. A slave of a fail-over set drops none before its age: its log would begin
    later than its master's, and such a member never joins the in-sync set."""
    may_drop = config.clean_file_forcibly_enable and not (config.is_slave and config.has_failover)
    return RetentionConfig(
        delete_when=frozenset(int(hour) for hour in config.delete_when.split(";")),
        file_reserved_ms=config.file_reserved_time * _HOUR_MS,
        max_used_ratio=config.disk_max_used_space_ratio / 100,
        forcible_ratio=config.disk_space_clean_forcibly_ratio / 100,
        warning_ratio=config.disk_space_warning_level_ratio / 100,
        clean_forcibly_enable=may_drop,
        delete_unread_under_pressure=config.delete_unread_under_pressure,
        max_files_per_round=config.delete_file_batch_max,
    )


def transfer_limits(config: BrokerConfig) -> TransferLimits:
    """What one pull of a client gets that has not negotiated more. As in Apache, the part of the memory that
    counts as holding the newest messages is smaller on a slave."""
    percentage = config.access_message_in_memory_max_ratio - (_LESS_ON_SLAVES if config.is_slave else 0)
    return TransferLimits(
        (config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory),
        (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk),
        memory_bytes() * max(0, percentage) // 100,
    )


def _folders(text: str | None) -> tuple[Path, ...]:
    return tuple(Path(folder.strip()) for folder in text.split(",")) if text else ()


def _whole_units(size_bytes: int) -> int:
    """Files hold whole units: a size between two is rounded up, as in Apache."""
    return -(-size_bytes // _UNIT_BYTES) * _UNIT_BYTES
