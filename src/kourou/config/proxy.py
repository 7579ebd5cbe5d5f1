"""ProxyConfig: the keys of Apache's `rmq-proxy.json`; the form is that of broker_settings.py.

Not here: reading them from a file and options (proxy_loader.py), what the keys do (`proxy/`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.access_settings import AuditLogSettings, LockoutSettings
from kourou.config.checks import addresses
from kourou.config.component import ComponentConfig
from kourou.config.inner_credentials import InnerCredentialsSettings
from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, Key, KeyTable, key_field, setting
from kourou.config.proxy_without_effect import WITHOUT_EFFECT
from kourou.config.remoting import OutgoingTlsSettings

_MIB: Final = 1024 * 1024

_port = partial(setting, "The gRPC port", live=False)
_messages = partial(setting, "Messages", live=False)
_clients = partial(setting, "What clients are told", live=False)
_access = partial(setting, "Access control", live=False, protected=True)


@dataclass(frozen=True, kw_only=True)
class ProxyConfig(
    LockoutSettings, AuditLogSettings, InnerCredentialsSettings, OutgoingTlsSettings, ComponentConfig
):
    """The configuration of a proxy."""

    grpc_server_port: int = _port(
        "grpcServerPort",
        INT,
        8081,
        "The port, on which clients expect it; 0 picks a free one.",
        low=0,
        high=65_535,
        important=True,
    )
    bind_address: str = _port(
        "bindAddress",
        STRING,
        "0.0.0.0",
        "Kourou's own: the address to listen on; `0.0.0.0` is all of the machine's.",
        important=True,
    )
    tls_server_mode: str | None = _port(
        "tls.server.mode",
        ENUM,
        None,
        "Kourou's own for a proxy: `permissive`: TLS and plaintext on one port; `enforcing`: TLS only; "
        "`disabled`: plaintext only. If not set, the mode of the broker in the same process, else "
        "`permissive`.",
        choices=("disabled", "permissive", "enforcing"),
        shown=False,
    )
    # Half of RocketMQ's clients use TLS by default, and verify no certificate.
    tls_test_mode_enable: bool = _port(
        "tlsTestModeEnable",
        BOOL,
        True,
        "Without `tlsCertPath`: serve TLS with a self-made certificate, which clients cannot verify. "
        "With false and no certificate: plaintext only; a start with `tls.server.mode=enforcing` fails.",
    )
    # Apache's default is a file in its home folder, which is not read as long as tlsTestModeEnable is set.
    tls_cert_path: str | None = _port(
        "tlsCertPath",
        STRING,
        None,
        "The certificate, PEM, followed while the proxy runs; it takes precedence over `tlsTestModeEnable`. "
        "If not set, `tls.server.certPath` and `tls.server.keyPath` of a broker in the same process count.",
        shown=False,
    )
    tls_key_path: str | None = _port("tlsKeyPath", STRING, None, "Its private key, PEM.", shown=False)
    tls_key_password: str | None = _port(
        "tlsKeyPassword", STRING, None, "The password of that key. Never shown.", secret=True, shown=False
    )
    grpc_max_inbound_message_size: int = _port(
        "grpcMaxInboundMessageSize",
        INT,
        130 * _MIB,
        "The largest request, in bytes; a larger one ends its call with RESOURCE_EXHAUSTED.",
        low=1024,
        high=1024 * _MIB,
    )
    # Apache's default is no limit; a peer must not fill the memory with open calls.
    grpc_max_concurrent_calls_per_connection: int = _port(
        "grpcMaxConcurrentCallsPerConnection",
        INT,
        4_096,
        "Open calls of one connection; clients wait with further ones. Apache's default is no limit.",
        low=1,
    )
    grpc_client_idle_time_mills: int = _port(
        "grpcClientIdleTimeMills",
        LONG,
        120_000,
        "A connection without calls is closed after this time, in ms.",
        low=1_000,
    )
    http_port: int | None = _port(
        "httpPort",
        INT,
        None,
        "Kourou's own: serve health checks (`/readyz`, `/livez`) and metrics (`/metrics`) by HTTP on this "
        "port; 0 picks a free one. Off if not set.",
        low=0,
        high=65_535,
        shown=False,
    )
    http_bind_address: str | None = _port(
        "httpBindAddress",
        STRING,
        None,
        "Kourou's own: the address of that port; `bindAddress` if not set.",
        shown=False,
    )

    namesrv_addr: str | None = setting(
        "Name servers",
        "namesrvAddr",
        STRING,
        None,
        "The name servers of the cluster, `host:port` separated by `;`; else the variable `NAMESRV_ADDR`.",
        live=False,
        important=True,
        check=addresses,
    )

    max_message_size: int = _messages(
        "maxMessageSize",
        INT,
        4 * _MIB,
        "The largest body, in bytes; 0 or less: no limit here. Brokers have their own.",
    )
    enable_message_body_empty_check: bool = _messages(
        "enableMessageBodyEmptyCheck", BOOL, True, "Refuse messages with an empty body."
    )
    max_user_property_size: int = _messages(
        "maxUserPropertySize",
        INT,
        16 * 1024,
        "The user properties of a message in total, in bytes; 0 or less: no limit.",
    )
    user_property_max_num: int = _messages(
        "userPropertyMaxNum", INT, 128, "The number of user properties of a message; 0 or less: no limit."
    )
    max_message_group_size: int = _messages(
        "maxMessageGroupSize",
        INT,
        64,
        "A message group is shorter than this, in bytes; 0 or less: no limit.",
    )
    max_delay_time_mills: int = _messages(
        "maxDelayTimeMills",
        LONG,
        86_400_000,
        "How far in the future a message may be delivered, in ms; 0 or less: no limit.",
    )
    max_transaction_recovery_second: int = _messages(
        "maxTransactionRecoverySecond",
        LONG,
        3_600,
        "The longest time until an open transaction is checked that a message may ask for, in seconds; 0 or "
        "less: no limit.",
    )
    enable_topic_message_type_check: bool = _messages(
        "enableTopicMessageTypeCheck",
        BOOL,
        True,
        "Refuse messages that are not of the type of their topic (attribute `message.type`).",
    )

    grpc_client_producer_max_attempts: int = _clients(
        "grpcClientProducerMaxAttempts", INT, 3, "How often a producer sends a message at most.", low=1
    )
    grpc_client_producer_backoff_initial_millis: int = _clients(
        "grpcClientProducerBackoffInitialMillis",
        LONG,
        10,
        "How long a producer waits before it sends again, in ms.",
        low=1,
    )
    grpc_client_producer_backoff_max_millis: int = _clients(
        "grpcClientProducerBackoffMaxMillis", LONG, 1_000, "The longest such pause, in ms.", low=1
    )
    grpc_client_producer_backoff_multiplier: int = _clients(
        "grpcClientProducerBackoffMultiplier", INT, 2, "The factor between two pauses.", low=1
    )
    grpc_client_consumer_min_long_polling_timeout_millis: int = _clients(
        "grpcClientConsumerMinLongPollingTimeoutMillis",
        LONG,
        5_000,
        "The shortest time that a consumer may wait for messages, in ms.",
        low=0,
    )
    grpc_client_consumer_max_long_polling_timeout_millis: int = _clients(
        "grpcClientConsumerMaxLongPollingTimeoutMillis",
        LONG,
        20_000,
        "The longest such time, in ms.",
        low=1,
        high=600_000,
    )
    grpc_client_consumer_long_polling_batch_size: int = _clients(
        "grpcClientConsumerLongPollingBatchSize",
        INT,
        32,
        "How many messages a push consumer asks for at a time.",
        low=1,
        high=32,
    )
    channel_expired_timeout: int = _clients(
        "channelExpiredTimeout",
        LONG,
        120_000,
        "How long a client stays registered without a call or an open Telemetry stream, in ms.",
        low=10_000,
    )

    authentication_enabled: bool = _access(
        "authenticationEnabled",
        BOOL,
        False,
        "Check the signatures of calls by the users of the brokers, which are read with the account of "
        "`innerClientAuthenticationCredentials`. Not where a broker runs in the same process: its own "
        "configuration decides.",
    )
    authorization_enabled: bool = _access(
        "authorizationEnabled",
        BOOL,
        False,
        "Check the policies of the users, too, for calls that reach no broker, such as those for routes.",
    )

    proxy_mode: str = key_field(
        Key(
            "proxyMode",
            ENUM,
            "CLUSTER",
            "`kourou proxy` is CLUSTER; `kourou broker --enable-proxy` and `kourou standalone --grpc-port` "
            "are LOCAL",
            choices=("CLUSTER", "LOCAL"),
        )
    )
    namesrv_domain: str = key_field(
        Key("namesrvDomain", STRING, "", "name servers are given as namesrvAddr or -n")
    )
    namesrv_domain_subgroup: str = key_field(
        Key("namesrvDomainSubgroup", STRING, "", "name servers are given as namesrvAddr or -n")
    )

    @property
    def saved_in(self) -> str | None:
        """Nowhere: no request changes a proxy."""
        return None

    @classmethod
    def known_keys(cls) -> KeyTable:
        """The keys of a proxy, those without effect included."""
        return KeyTable([*super().known_keys(), *WITHOUT_EFFECT])

    @classmethod
    def other_keys(cls) -> KeyTable:
        """Keys of every other component; loaded when a key is not a proxy's."""
        return _other_keys()


@functools.cache
def _other_keys() -> KeyTable:
    from kourou.config.broker import BrokerConfig
    from kourou.config.namesrv import NamesrvConfig
    from kourou.config.other_keys import OTHER_KEYS

    return KeyTable([*BrokerConfig.known_keys(), *NamesrvConfig.known_keys(), *OTHER_KEYS])
