"""`mqproxy`: the proxy with Apache's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kourou.cli.apache_options import ApacheParser
from kourou.cli.problems import run_command
from kourou.cli.proxy import run_proxy
from kourou.cli.serving import ServerOptions
from kourou.errors import ConfigError

PROGRAM = "mqproxy"
_LOCAL = "-pm local: a broker with a proxy in its process is `mqbroker --enable-proxy -c broker.conf`"


def parse(arguments: Sequence[str] | None) -> ServerOptions:
    """Turn Apache's options into ours. ConfigError for those of a broker."""
    given = _parser().parse_args(arguments)
    if (given.proxyMode or "").lower() == "local" or given.brokerConfigPath is not None:
        raise ConfigError(_LOCAL)
    return ServerOptions(
        config_file=given.proxyConfigPath,
        overrides={} if given.namesrvAddr is None else {"namesrvAddr": given.namesrvAddr},
        option_names={"namesrvAddr": "-n"},
        print_config=given.printConfigItem,
        print_important_config=given.printImportantConfig,
        log_file=given.logFile,
    )


def _parser() -> argparse.ArgumentParser:
    parser = ApacheParser(PROGRAM, "Run a RocketMQ proxy: gRPC clients in front of a cluster of brokers.")
    parser.add("pc", "proxyConfigPath", "configuration file, rmq-proxy.json", type=Path, metavar="FILE")
    parser.add("n", "namesrvAddr", "name servers, as in 192.168.0.1:9876;192.168.0.2:9876", metavar="LIST")
    parser.add("pm", "proxyMode", "cluster; local is mqbroker --enable-proxy", metavar="MODE")
    parser.add("bc", "brokerConfigPath", "see mqbroker --enable-proxy", type=Path, metavar="FILE")
    parser.add("p", "printConfigItem", "print the whole configuration and exit", action="store_true")
    parser.add("m", "printImportantConfig", "print the important part and exit", action="store_true")
    parser.add("", "logFile", "log file; - logs to the console (Kourou only)", metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mqproxy`; exits with the command's code."""
    run_command(PROGRAM, lambda: run_proxy(parse(arguments)))


if __name__ == "__main__":
    main()
