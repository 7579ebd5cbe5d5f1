"""`mqnamesrv`: the name server with Apache's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kourou.cli.apache_options import ApacheParser
from kourou.cli.namesrv import run_namesrv
from kourou.cli.problems import run_command
from kourou.cli.serving import ServerOptions

PROGRAM = "mqnamesrv"


def parse(arguments: Sequence[str] | None) -> ServerOptions:
    """Turn Apache's options into ours."""
    given = _parser().parse_args(arguments)
    return ServerOptions(
        config_file=given.configFile,
        namesrv_addr=given.namesrvAddr,
        print_config=given.printConfigItem,
        print_important_config=given.printImportantConfig,
        log_file=given.logFile,
    )


def _parser() -> argparse.ArgumentParser:
    parser = ApacheParser(PROGRAM, "Run a RocketMQ name server.")
    parser.add("c", "configFile", "configuration file (key=value lines)", type=Path, metavar="FILE")
    parser.add("n", "namesrvAddr", "accepted and ignored: name servers do not talk", metavar="LIST")
    parser.add("p", "printConfigItem", "print the whole configuration and exit", action="store_true")
    parser.add("m", "printImportantConfig", "print the important part and exit", action="store_true")
    parser.add("", "logFile", "log file; - logs to the console (Kourou only)", metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mqnamesrv`; exits with the command's code."""
    run_command(PROGRAM, lambda: run_namesrv(parse(arguments)))


if __name__ == "__main__":
    main()
