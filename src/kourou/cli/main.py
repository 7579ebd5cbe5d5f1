"""`kourou`: every command of Kourou under one name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kourou import __version__
from kourou.cli.problems import run_command
from kourou.cli.store import store_app
from kourou.logs import LogLevel

app = typer.Typer(
    name="kourou",
    help="RocketMQ in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_app)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kourou {__version__}")
        raise typer.Exit


@app.callback()
def kourou(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """RocketMQ in Python."""


@app.command()
def namesrv(
    config: Annotated[
        Path | None, typer.Option("-c", "--config", "--configFile", help="Configuration file, Apache's keys.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (listenPort).")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of logs and data (rocketmqHome).")] = None,
    log_file: Annotated[
        str | None, typer.Option(help="Log file; - logs to the console. Else <home>/logs/namesrv.log.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="From which importance on.")] = LogLevel.INFO,
    print_config: Annotated[
        bool, typer.Option("-p", "--print-config", help="Print the whole configuration and end.")
    ] = False,
    print_important_config: Annotated[
        bool, typer.Option("-m", "--print-important-config", help="Print its important part and end.")
    ] = False,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", hidden=True, help="Ignored, as it means nothing here."),
    ] = None,
) -> None:
    """Run a name server."""
    from kourou.cli.namesrv import NamesrvOptions, run_namesrv

    given = {"bindAddress": host, "listenPort": port, "rocketmqHome": home}
    options = NamesrvOptions(
        config_file=config,
        overrides={key: str(value) for key, value in given.items() if value is not None},
        namesrv_addr=namesrv_addr,
        print_config=print_config,
        print_important_config=print_important_config,
        log_file=log_file,
        log_level=log_level,
    )
    run_command("kourou namesrv", lambda: run_namesrv(options))


@app.command()
def demo() -> None:
    """Show a name server at work: register a broker, look up a route."""
    from kourou.cli.demo import run_demo

    run_command("kourou demo", run_demo)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
