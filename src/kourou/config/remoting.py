"""Settings that every component with a listening address shares: its socket, its TLS.

RocketMQ keeps the first in each component's file and the TLS keys in system properties or a file
of their own; here a component's file takes all of them. What the transport makes of them is
`transport/settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.config.keys import Key, ValueType, keys, setting

_BOOL, _INT, _STRING, _ENUM = ValueType.BOOL, ValueType.INT, ValueType.STRING, ValueType.ENUM

_ONE_LOOP: Final = "requests are handled on one event loop; there is no thread pool to size"
_NO_NETTY: Final = "the sockets are asyncio's; there is no Netty to tune"
_OWN_BOUNDS: Final = "each connection has bounds of its own; a peer that does not read is not read from"
_OWN_MARKS: Final = "reading pauses while 256 KiB of answers to a peer are unsent"
_OS_BUFFERS: Final = "the operating system sizes socket buffers by itself"


# The methods are made once, for each component's class: a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RemotingServerSettings:
    """Where a server listens, and its connections."""

    # All interfaces, as Apache: brokers and clients are on other machines.
    bind_address: str = setting(Key("bindAddress", _STRING, "0.0.0.0", important=True))
    # 0 lets the operating system pick a free port.
    listen_port: int = setting(Key("listenPort", _INT, 0, low=0, high=65_535, important=True))
    # Ours: health checks by HTTP. Off: a port that nobody asked for should not be open.
    http_port: int | None = setting(Key("httpPort", _INT, low=0, high=65_535, shown=False))
    http_bind_address: str | None = setting(Key("httpBindAddress", _STRING, shown=False))
    # Brokers register every 30 s; four missed rounds mean that the peer is gone.
    server_channel_max_idle_time_seconds: int = setting(
        Key("serverChannelMaxIdleTimeSeconds", _INT, 120, low=1, high=86_400)
    )
    # Connections the kernel accepts while we are busy; a cluster that comes back reconnects at once.
    server_socket_backlog: int = setting(
        Key(
            "serverSocketBacklog",
            _INT,
            1024,
            low=1,
            high=65_535,
            old_names=("com.rocketmq.remoting.socket.backlog",),
        )
    )
    # A Java system property in RocketMQ; the largest frame, its length field included.
    frame_max_length: int = setting(
        Key(
            "com.rocketmq.remoting.frameMaxLength",
            _INT,
            16_777_216,
            low=1024,
            high=2**30,
            shown=False,
        )
    )
    server_worker_threads: int = setting(Key("serverWorkerThreads", _INT, 8, _ONE_LOOP))
    server_selector_threads: int = setting(Key("serverSelectorThreads", _INT, 3, _ONE_LOOP))
    server_callback_executor_threads: int = setting(Key("serverCallbackExecutorThreads", _INT, 0, _ONE_LOOP))
    server_oneway_semaphore_value: int = setting(Key("serverOnewaySemaphoreValue", _INT, 256, _OWN_BOUNDS))
    server_async_semaphore_value: int = setting(Key("serverAsyncSemaphoreValue", _INT, 64, _OWN_BOUNDS))
    server_socket_snd_buf_size: int = setting(
        Key(
            "serverSocketSndBufSize",
            _INT,
            0,
            _OS_BUFFERS,
            old_names=("com.rocketmq.remoting.socket.sndbuf.size",),
        )
    )
    server_socket_rcv_buf_size: int = setting(
        Key(
            "serverSocketRcvBufSize",
            _INT,
            0,
            _OS_BUFFERS,
            old_names=("com.rocketmq.remoting.socket.rcvbuf.size",),
        )
    )
    write_buffer_high_water_mark: int = setting(
        Key(
            "writeBufferHighWaterMark",
            _INT,
            0,
            _OWN_MARKS,
            old_names=("com.rocketmq.remoting.write.buffer.high.water.mark",),
        )
    )
    write_buffer_low_water_mark: int = setting(
        Key(
            "writeBufferLowWaterMark",
            _INT,
            0,
            _OWN_MARKS,
            old_names=("com.rocketmq.remoting.write.buffer.low.water.mark",),
        )
    )
    server_netty_worker_group_enable: bool = setting(
        Key("serverNettyWorkerGroupEnable", _BOOL, True, _NO_NETTY)
    )
    server_pooled_byte_buf_allocator_enable: bool = setting(
        Key(
            "serverPooledByteBufAllocatorEnable",
            _BOOL,
            True,
            _NO_NETTY,
            old_names=("com.rocketmq.remoting.nettyPooledByteBufAllocatorEnable",),
        )
    )
    use_epoll_native_selector: bool = setting(Key("useEpollNativeSelector", _BOOL, False, _NO_NETTY))
    enable_shutdown_gracefully: bool = setting(
        Key("enableShutdownGracefully", _BOOL, False, "every stop answers what is in flight first")
    )
    shutdown_wait_time_seconds: int = setting(
        Key("shutdownWaitTimeSeconds", _INT, 30, "a stop takes 3 seconds at most")
    )


_TLS_FILE: Final = "/etc/rocketmq/tls.properties"
_ALWAYS_VERIFIED: Final = "a certificate that is asked for is verified against tls.server.trustCertPath"
_MODES: Final = ("disabled", "permissive", "enforcing")
_CLIENT_AUTH: Final = ("none", "optional", "require")


def _tls(
    name: str, value_type: ValueType = _STRING, default: str | bool | None = None, *, secret: bool = False
) -> Key:
    # Answers to a config request show TLS keys only where a file sets them, as Apache's do.
    return Key(name, value_type, default, shown=False, secret=secret)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings:
    """RocketMQ's TLS keys. Certificates and keys are PEM files; host names are not verified."""

    # Another file of TLS keys; its values win. Read where it is there, as Apache does.
    tls_config_file: str = setting(_tls("tls.config.file", default=_TLS_FILE))
    # The first byte of a connection tells TLS from plain, so that both work on one port.
    tls_server_mode: str = setting(Key("tls.server.mode", _ENUM, "permissive", choices=_MODES, shown=False))
    # Makes a certificate that nobody can verify. Apache's default is true; encryption that
    # protects nobody should be asked for.
    tls_test_mode_enable: bool = setting(_tls("tls.test.mode.enable", _BOOL, False))
    tls_server_need_client_auth: str = setting(
        Key("tls.server.need.client.auth", _ENUM, "none", choices=_CLIENT_AUTH, shown=False)
    )
    tls_server_cert_path: str | None = setting(_tls("tls.server.certPath"))
    tls_server_key_path: str | None = setting(_tls("tls.server.keyPath"))
    tls_server_key_password: str | None = setting(_tls("tls.server.keyPassword", secret=True))
    # Apache's default, false, trusts whatever certificate a client shows.
    tls_server_auth_client: bool = setting(
        Key("tls.server.authClient", _BOOL, True, _ALWAYS_VERIFIED, shown=False)
    )
    tls_server_trust_cert_path: str | None = setting(_tls("tls.server.trustCertPath"))
    tls_enable: bool = setting(_tls("tls.enable", _BOOL, False))
    tls_client_cert_path: str | None = setting(_tls("tls.client.certPath"))
    tls_client_key_path: str | None = setting(_tls("tls.client.keyPath"))
    tls_client_key_password: str | None = setting(_tls("tls.client.keyPassword", secret=True))
    # False trusts whatever certificate a server shows.
    tls_client_auth_server: bool = setting(_tls("tls.client.authServer", _BOOL, False))
    tls_client_trust_cert_path: str | None = setting(_tls("tls.client.trustCertPath"))


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RemotingSettings(RemotingServerSettings, TlsSettings):
    """Everything a component with a listening address may be told about its connections."""


# Apache reads these into every component; a name server opens no connections but short ones.
CLIENT_KEYS: Final = (
    Key("connectTimeoutMillis", _INT, 3_000, low=1),
    Key(
        "clientChannelMaxIdleTimeSeconds",
        _INT,
        120,
        "connections to name servers are used every registerNameServerPeriod; others close after 120 s",
        low=1,
        high=86_400,
    ),
    *keys(_INT, _ONE_LOOP, clientWorkerThreads=4, clientCallbackExecutorThreads=0),
    *keys(_INT, _OWN_BOUNDS, clientOnewaySemaphoreValue=65_535, clientAsyncSemaphoreValue=65_535),
    *keys(_INT, _OS_BUFFERS, clientSocketSndBufSize=0, clientSocketRcvBufSize=0),
    *keys(
        ValueType.LONG,
        "a broken connection is seen at once and made anew when it is needed",
        channelNotActiveInterval=60_000,
        maxReconnectIntervalTimeSeconds=60,
    ),
    *keys(
        _BOOL,
        _NO_NETTY,
        isScanAvailableNameSrv=True,
        clientPooledByteBufAllocatorEnable=False,
        clientCloseSocketIfTimeout=True,
        disableCallbackExecutor=False,
        disableNettyWorkerGroup=False,
        enableReconnectForGoAway=True,
    ),
    *keys(_BOOL, "tls.enable switches TLS of outgoing connections", useTLS=False),
    *keys(_STRING, "connections are direct; there is no proxy support", socksProxyConfig="{}"),
)
