"""Apache's proxy in local mode: its broker lives in the same process, as with `mqbroker --enable-proxy`.

with start_proxy(work_dir, [namesrv.address]) as proxy:
    print(proxy.endpoints, proxy.broker)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.interop.kit import apache
from tests.interop.kit.ports import free_broker_port, free_port
from tests.interop.kit.process import ServerProcess

PROXY_SET: Final = "proxy-5.5.0"
"""The jars of the proxy, which hold its broker."""


def launch_apache_proxy(
    work_dir: Path,
    namesrvs: Sequence[str],
    *,
    grpc_port: int = 0,
    properties: Mapping[str, str] | None = None,
    proxy_settings: Mapping[str, object] | None = None,
    jvm_options: Sequence[str] = apache.TEST_JVM_OPTIONS,
) -> ServerProcess:
    """Launch the proxy with a broker of its own, whose properties are those of a broker's file;
    `.wait_ready()` waits until gRPC is served. Its port is that of gRPC."""
    work_dir.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="proxy-5.5.0-", dir=work_dir.absolute()))
    port = grpc_port or free_port()
    broker = {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(free_broker_port()),
        "namesrvAddr": ";".join(namesrvs),
        **apache.store_settings(home),
        **(properties or {}),
    }
    settings = {
        "proxyMode": "LOCAL",
        "rocketMQClusterName": broker["brokerClusterName"],
        "namesrvAddr": broker["namesrvAddr"],
        "localServeAddr": "127.0.0.1",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
        **(proxy_settings or {}),
    }
    command = apache.java_command(PROXY_SET, home, (*jvm_options, *apache.DISK_OPTIONS))
    broker_conf, proxy_conf = home / "broker.conf", home / "rmq-proxy.json"
    broker_conf.write_text("".join(f"{key}={value}\n" for key, value in broker.items()))
    proxy_conf.write_text(json.dumps(settings))
    words = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local"]
    return ServerProcess(
        "proxy 5.5.0",
        [*command, *words, "-bc", str(broker_conf), "-pc", str(proxy_conf)],
        port=port,
        log_path=home / "console.log",
        ready_text="rocketmq-proxy startup successfully",
    )
