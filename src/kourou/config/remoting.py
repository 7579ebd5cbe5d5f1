"""Keys that every component with a listening address shares: its sockets, its TLS.

RocketMQ keeps the former in each component's file and the TLS keys in system properties or a file
of their own; here a component's file accepts all of them. The form of a declaration is that of
broker_settings.py. What the transport does with them is in `transport/settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, Key, key_field, keys, setting

_ONE_LOOP: Final = "requests are handled on one event loop; there is no thread pool to size"
_NO_NETTY: Final = "the sockets are asyncio's; there is no Netty to tune"
_OWN_BOUNDS: Final = "each connection has its own bounds; a peer that does not read is not read from"
_OWN_MARKS: Final = "reading pauses while 256 KiB of responses to a peer are unsent"
_OS_BUFFERS: Final = "the operating system sizes socket buffers"

_connections = partial(setting, "Connections", live=False)


# The methods are generated once, for each component's class: a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RemotingServerSettings:
    """Where a server listens, and its connections."""

    # Each component declares the key, with its own default.
    listen_port: int

    # All interfaces, as in Apache: brokers and clients are on other machines.
    bind_address: str = _connections(
        "bindAddress",
        STRING,
        "0.0.0.0",
        "The address to listen on; `0.0.0.0` is all of the machine's.",
        important=True,
    )
    # Off by default: a port that is not needed should not be open.
    http_port: int | None = _connections(
        "httpPort",
        INT,
        None,
        "Kourou's own: serve HTTP on this port: health checks, `/readyz` and `/livez` "
        "([deploying.md](deploying.md)), and metrics, `/metrics` and `/metrics/exporter` "
        "([metrics.md](metrics.md)); 0 picks a free one. Off if not set.",
        low=0,
        high=65_535,
        shown=False,
    )
    http_bind_address: str | None = _connections(
        "httpBindAddress",
        STRING,
        None,
        "Kourou's own: the address of that port; `bindAddress` if not set.",
        shown=False,
    )
    # For networks that may see metrics and nothing else.
    metrics_port: int | None = _connections(
        "metricsPort",
        INT,
        None,
        "Kourou's own: serve the same on this port, too; 0 picks a free one. Off if not set.",
        low=0,
        high=65_535,
        shown=False,
    )
    # Brokers register every 30 s; four missed rounds mean that the peer is gone.
    server_channel_max_idle_time_seconds: int = _connections(
        "serverChannelMaxIdleTimeSeconds",
        INT,
        120,
        "A connection that is idle for so many seconds is closed.",
        low=1,
        high=86_400,
    )
    # A cluster that comes back reconnects all at once.
    server_socket_backlog: int = _connections(
        "serverSocketBacklog",
        INT,
        1024,
        "How many connections the operating system queues while the server is busy.",
        low=1,
        high=65_535,
        old_names=("com.rocketmq.remoting.socket.backlog",),
    )
    frame_max_length: int = _connections(
        "com.rocketmq.remoting.frameMaxLength",
        INT,
        16_777_216,
        "The largest frame in bytes, including its length field; a Java system property in RocketMQ, a key "
        "of the file here.",
        low=1024,
        high=2**30,
        shown=False,
    )
    server_worker_threads: int = key_field(Key("serverWorkerThreads", INT, 8, _ONE_LOOP))
    server_selector_threads: int = key_field(Key("serverSelectorThreads", INT, 3, _ONE_LOOP))
    server_callback_executor_threads: int = key_field(Key("serverCallbackExecutorThreads", INT, 0, _ONE_LOOP))
    server_oneway_semaphore_value: int = key_field(Key("serverOnewaySemaphoreValue", INT, 256, _OWN_BOUNDS))
    server_async_semaphore_value: int = key_field(Key("serverAsyncSemaphoreValue", INT, 64, _OWN_BOUNDS))
    server_socket_snd_buf_size: int = key_field(
        Key(
            "serverSocketSndBufSize",
            INT,
            0,
            _OS_BUFFERS,
            old_names=("com.rocketmq.remoting.socket.sndbuf.size",),
        )
    )
    server_socket_rcv_buf_size: int = key_field(
        Key(
            "serverSocketRcvBufSize",
            INT,
            0,
            _OS_BUFFERS,
            old_names=("com.rocketmq.remoting.socket.rcvbuf.size",),
        )
    )
    write_buffer_high_water_mark: int = key_field(
        Key(
            "writeBufferHighWaterMark",
            INT,
            0,
            _OWN_MARKS,
            old_names=("com.rocketmq.remoting.write.buffer.high.water.mark",),
        )
    )
    write_buffer_low_water_mark: int = key_field(
        Key(
            "writeBufferLowWaterMark",
            INT,
            0,
            _OWN_MARKS,
            old_names=("com.rocketmq.remoting.write.buffer.low.water.mark",),
        )
    )
    server_netty_worker_group_enable: bool = key_field(
        Key("serverNettyWorkerGroupEnable", BOOL, True, _NO_NETTY)
    )
    server_pooled_byte_buf_allocator_enable: bool = key_field(
        Key(
            "serverPooledByteBufAllocatorEnable",
            BOOL,
            True,
            _NO_NETTY,
            old_names=("com.rocketmq.remoting.nettyPooledByteBufAllocatorEnable",),
        )
    )
    use_epoll_native_selector: bool = key_field(Key("useEpollNativeSelector", BOOL, False, _NO_NETTY))
    enable_shutdown_gracefully: bool = key_field(
        Key("enableShutdownGracefully", BOOL, False, "every stop completes the requests in flight first")
    )
    shutdown_wait_time_seconds: int = key_field(
        Key("shutdownWaitTimeSeconds", INT, 30, "a stop takes at most 3 seconds")
    )


# Config responses show TLS keys only where a file sets them, as Apache's do. No request may weaken them.
_tls = partial(setting, "TLS", live=False, protected=True, shown=False)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ListeningTlsSettings:
    """The TLS keys of a component with a listening address. Certificates and keys are PEM files."""

    tls_config_file: str = _tls(
        "tls.config.file",
        STRING,
        "/etc/rocketmq/tls.properties",
        "Another file of TLS keys. It is read if it exists, and its values take precedence.",
    )
    # The first byte of a connection tells TLS from plaintext, so that both work on one port.
    tls_server_mode: str = _tls(
        "tls.server.mode",
        ENUM,
        "permissive",
        "`permissive`: TLS and plaintext on one port; `enforcing`: TLS only; `disabled`: plaintext only.",
        choices=("disabled", "permissive", "enforcing"),
    )
    # Apache's slaves and masters have no TLS on the HA link, while clients may have to use it.
    tls_server_mode_ha: str | None = _tls(
        "tls.server.mode.ha",
        ENUM,
        None,
        "Kourou's own: the same for a broker's port for slaves, `haListenPort`; as `tls.server.mode` if not "
        "set. Slaves of Apache's need `permissive` or `disabled`.",
        choices=("disabled", "permissive", "enforcing"),
    )
    # Encryption that protects against nothing should be opted into.
    tls_test_mode_enable: bool = _tls(
        "tls.test.mode.enable",
        BOOL,
        False,
        "Serve a throw-away certificate that cannot be verified. Apache's default is true. Needs "
        "`pip install 'kourou[tls-test]'`.",
    )
    tls_server_need_client_auth: str = _tls(
        "tls.server.need.client.auth",
        ENUM,
        "none",
        "Whether clients must present a certificate: `require`, `optional` or `none`.",
        choices=("none", "optional", "require"),
    )
    # Apache's slaves may have no certificate, while clients must.
    tls_server_need_client_auth_fast: str | None = _tls(
        "tls.server.need.client.auth.fast",
        ENUM,
        None,
        "Kourou's own: the same for a broker's second port, `fastListenPort`; as for the first if not set.",
        choices=("none", "optional", "require"),
    )
    # A name in a certificate is worth what its issuer is; an operator has to decide that.
    tls_server_client_certificate_user: str = _tls(
        "tls.server.clientCertificateUser",
        ENUM,
        "none",
        "Kourou's own: the name in a client's certificate is its user, and its requests need no signature: "
        "`commonName`, `sanEmail` or `sanUri`; `none`: certificates name nobody. Needs "
        "`tls.server.trustCertPath` ([security.md](security.md#the-certificate-as-user)).",
        choices=("none", "commonName", "sanEmail", "sanUri"),
    )
    tls_server_cert_path: str | None = _tls(
        "tls.server.certPath", STRING, None, "The server's certificate, PEM."
    )
    tls_server_key_path: str | None = _tls("tls.server.keyPath", STRING, None, "Its private key, PEM.")
    tls_server_key_password: str | None = _tls(
        "tls.server.keyPassword", STRING, None, "The password of that key. Never shown.", secret=True
    )
    # Apache's default, false, trusts any client certificate.
    tls_server_auth_client: bool = key_field(
        Key(
            "tls.server.authClient",
            BOOL,
            True,
            "a client certificate is always verified against tls.server.trustCertPath",
            shown=False,
            protected=True,
        )
    )
    tls_server_trust_cert_path: str | None = _tls(
        "tls.server.trustCertPath",
        STRING,
        None,
        "The CA certificates that client certificates must be signed by.",
    )


_outgoing = partial(setting, "TLS of outgoing connections", live=False, protected=True, shown=False)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class OutgoingTlsSettings:
    """The TLS keys of a component that connects to others; host names are not verified."""

    tls_enable: bool = _outgoing("tls.enable", BOOL, False, "Encrypt outgoing connections.")
    tls_enable_ha: bool | None = _outgoing(
        "tls.enable.ha",
        BOOL,
        None,
        "Kourou's own: encrypt a slave's link to its master. If not set, links to masters of Kourou are as "
        "`tls.enable` says, and those to Apache's, which offer no TLS there, are not encrypted.",
    )
    tls_client_cert_path: str | None = _outgoing(
        "tls.client.certPath", STRING, None, "The certificate presented on outgoing connections."
    )
    tls_client_key_path: str | None = _outgoing("tls.client.keyPath", STRING, None, "Its private key.")
    tls_client_key_password: str | None = _outgoing(
        "tls.client.keyPassword", STRING, None, "The password of that key. Never shown.", secret=True
    )
    tls_client_auth_server: bool = _outgoing(
        "tls.client.authServer",
        BOOL,
        False,
        "Verify the server's certificate on outgoing connections; false trusts any.",
    )
    tls_client_trust_cert_path: str | None = _outgoing(
        "tls.client.trustCertPath",
        STRING,
        None,
        "The CA certificates that server certificates must be signed by.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings(ListeningTlsSettings, OutgoingTlsSettings):
    """RocketMQ's TLS keys."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RemotingSettings(RemotingServerSettings, TlsSettings):
    """The connection settings of a component with a listening address."""


# Apache reads these into every component; a name server opens only short connections.
CLIENT_KEYS_WITHOUT_EFFECT: Final = (
    Key(
        "clientChannelMaxIdleTimeSeconds",
        INT,
        120,
        "connections to name servers are used every registerNameServerPeriod; others close after 120 s",
        low=1,
        high=86_400,
    ),
    *keys(INT, _ONE_LOOP, clientWorkerThreads=4, clientCallbackExecutorThreads=0),
    *keys(INT, _OWN_BOUNDS, clientOnewaySemaphoreValue=65_535, clientAsyncSemaphoreValue=65_535),
    *keys(INT, _OS_BUFFERS, clientSocketSndBufSize=0, clientSocketRcvBufSize=0),
    *keys(
        LONG,
        "a broken connection is detected at once and reopened when needed",
        channelNotActiveInterval=60_000,
        maxReconnectIntervalTimeSeconds=60,
    ),
    *keys(
        BOOL,
        _NO_NETTY,
        isScanAvailableNameSrv=True,
        clientPooledByteBufAllocatorEnable=False,
        clientCloseSocketIfTimeout=True,
        disableCallbackExecutor=False,
        disableNettyWorkerGroup=False,
        enableReconnectForGoAway=True,
    ),
    *keys(BOOL, "tls.enable switches TLS of outgoing connections", useTLS=False),
    *keys(STRING, "connections are direct; there is no proxy support", socksProxyConfig="{}"),
)
