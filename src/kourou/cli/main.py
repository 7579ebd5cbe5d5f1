"""`kourou`: every command of Kourou under one name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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


_ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", "--configFile", help="Configuration file, Apache's keys.")
]
_Home = Annotated[Path | None, typer.Option(help="Folder of logs and data (rocketmqHome).")]
_LogFile = Annotated[str | None, typer.Option(help="Log file; - logs to the console.")]
_Level = Annotated[LogLevel, typer.Option(help="From which importance on.")]
_PrintConfig = Annotated[
    bool, typer.Option("-p", "--print-config", help="Print the whole configuration and end.")
]
_PrintImportant = Annotated[
    bool, typer.Option("-m", "--print-important-config", help="Print its important part and end.")
]


@app.command()
def standalone(
    store: Annotated[
        Path | None, typer.Option(help="Folder of the store; in your data folder if not given.")
    ] = None,
    namesrv_port: Annotated[int, typer.Option(help="Port of the name server; 0 picks one.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Port of the first broker; 0 picks one.")] = 10911,
    brokers: Annotated[int, typer.Option(help="How many brokers; more than one: a process each.")] = 1,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    advertise: Annotated[
        str | None, typer.Option(help="Address that clients are told, if it is another.")
    ] = None,
    log_file: _LogFile = None,
    log_level: _Level = LogLevel.INFO,
) -> None:
    """Run a name server and a broker together."""
    from kourou.cli.standalone import StandaloneLog, default_store, run_standalone
    from kourou.standalone.options import StandaloneOptions

    options = StandaloneOptions(
        store=(store or default_store()).absolute(),
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        brokers=brokers,
        host=host,
        advertise=advertise,
    )
    run_command("kourou standalone", lambda: run_standalone(options, StandaloneLog(log_file, log_level)))


@app.command()
def broker(
    config: _ConfigFile = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (listenPort).")] = None,
    advertise: Annotated[str | None, typer.Option(help="Address that clients are told (brokerIP1).")] = None,
    store: Annotated[Path | None, typer.Option(help="Folder of the store (storePathRootDir).")] = None,
    home: _Home = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key; may be repeated.")
    ] = None,
    log_file: _LogFile = None,
    log_level: _Level = LogLevel.INFO,
    print_config: _PrintConfig = False,
    print_important_config: _PrintImportant = False,
) -> None:
    """Run a broker."""
    from kourou.cli.broker import BrokerOptions, parse_settings, run_broker

    given = {
        "bindAddress": host,
        "listenPort": port,
        "brokerIP1": advertise,
        "storePathRootDir": store,
        "rocketmqHome": home,
    }

    def action() -> None:
        options = BrokerOptions(
            config_file=config,
            overrides={**parse_settings(settings or []), **_texts(given)},
            namesrv_addr=namesrv_addr,
            print_config=print_config,
            print_important_config=print_important_config,
            log_file=log_file,
            log_level=log_level,
        )
        run_broker(options)

    run_command("kourou broker", action)


@app.command()
def namesrv(
    config: _ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (listenPort).")] = None,
    home: _Home = None,
    log_file: _LogFile = None,
    log_level: _Level = LogLevel.INFO,
    print_config: _PrintConfig = False,
    print_important_config: _PrintImportant = False,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", hidden=True, help="Ignored, as it means nothing here."),
    ] = None,
) -> None:
    """Run a name server."""
    from kourou.cli.namesrv import run_namesrv
    from kourou.cli.serving import ServerOptions

    given = {"bindAddress": host, "listenPort": port, "rocketmqHome": home}
    options = ServerOptions(
        config_file=config,
        overrides=_texts(given),
        namesrv_addr=namesrv_addr,
        print_config=print_config,
        print_important_config=print_important_config,
        log_file=log_file,
        log_level=log_level,
    )
    run_command("kourou namesrv", lambda: run_namesrv(options))


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="For how long.")] = 5.0,
) -> None:
    """Show a broker at work: topics, rates and lag, for some seconds."""
    from kourou.cli.demo import run_demo

    run_command("kourou demo", lambda: run_demo(seconds))


def _texts(given: dict[str, Any]) -> dict[str, str]:
    """The keys that options set."""
    return {key: str(value) for key, value in given.items() if value is not None}


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
