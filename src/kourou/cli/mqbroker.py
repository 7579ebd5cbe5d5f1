"""`mqbroker`: the broker with Apache's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kourou.cli.apache_options import ApacheParser
from kourou.cli.broker import BrokerOptions, run_broker
from kourou.cli.pairs import parse_pairs
from kourou.cli.problems import run_command
from kourou.config.properties import properties_dict
from kourou.config.properties_file import read_properties
from kourou.standalone.options import BROKER_OPTIONS

PROGRAM = "mqbroker"


def parse(arguments: Sequence[str] | None) -> BrokerOptions:
    """Turn Apache's options into ours."""
    given = _parser().parse_args(arguments)
    settings = parse_pairs("--set", given.set or [])
    if given.keysFile is not None:
        settings |= properties_dict(read_properties(given.keysFile))
    addresses = {} if given.namesrvAddr is None else {"namesrvAddr": given.namesrvAddr}
    return BrokerOptions(
        config_file=given.configFile,
        # Standalone passes its own options as keys.
        overrides=settings if given.supervised else addresses,
        option_names=BROKER_OPTIONS if given.supervised else {"namesrvAddr": "-n"},
        settings={} if given.supervised else settings,
        print_config=given.printConfigItem,
        print_important_config=given.printImportantConfig,
        log_file=given.logFile,
        is_supervised=given.supervised,
        has_proxy=given.enable_proxy,
        proxy_config_file=given.proxyConfigPath,
    )


def _parser() -> argparse.ArgumentParser:
    parser = ApacheParser(PROGRAM, "Run a RocketMQ broker.")
    parser.add("c", "configFile", "configuration file (key=value lines)", type=Path, metavar="FILE")
    parser.add("n", "namesrvAddr", "name servers, as in 192.168.0.1:9876;192.168.0.2:9876", metavar="LIST")
    parser.add("p", "printConfigItem", "print the whole configuration and exit", action="store_true")
    parser.add("m", "printImportantConfig", "print the important part and exit", action="store_true")
    parser.add_argument(
        "--enable-proxy", action="store_true", help="also serve gRPC clients, as a proxy in local mode"
    )
    parser.add(
        "pc", "proxyConfigPath", "configuration of that proxy (rmq-proxy.json)", type=Path, metavar="FILE"
    )
    parser.add("", "logFile", "log file; - logs to the console (Kourou only)", metavar="FILE")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="set a key (Kourou only)")
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    # Keys of standalone that other users must not see.
    parser.add_argument("--keysFile", type=Path, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mqbroker`; exits with the command's code."""
    run_command(PROGRAM, lambda: run_broker(parse(arguments)))


if __name__ == "__main__":
    main()
