"""`kourou`: every command of Kourou under one name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kourou import __version__
from kourou.cli.bench import bench_app
from kourou.cli.pipeline import pipeline_app
from kourou.cli.problems import run_command
from kourou.cli.quickstart import quickstart_app
from kourou.cli.store import store_app
from kourou.cli.usage import OneLineGroup, whole_number
from kourou.logs import LogLevel

# Keys that options of their own set.
_NAMESRV_OPTIONS: Final = {
    "bindAddress": "--host",
    "listenPort": "--port",
    "rocketmqHome": "--home",
    "httpPort": "--http-port",
}
_BROKER_OPTIONS: Final = {
    **_NAMESRV_OPTIONS,
    "brokerIP1": "--advertise",
    "storePathRootDir": "--store",
    "namesrvAddr": "-n",
}

app = typer.Typer(
    name="kourou",
    cls=OneLineGroup,
    help="RocketMQ in Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: its tables cut long options off.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app)
app.add_typer(pipeline_app)
app.add_typer(quickstart_app)
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
    Path | None,
    typer.Option("-c", "--config", "--configFile", metavar="FILE", help="Apache's configuration file."),
]
_Home = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of logs and data (rocketmqHome).")]
_LogFile = Annotated[str | None, typer.Option(metavar="FILE", help="Log file; - logs to the console.")]
_Level = Annotated[LogLevel, typer.Option(help="From which importance on.")]
_HttpPort = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="Answer health checks by HTTP there, /readyz and /livez; 0 picks one."),
]
_PrintConfig = Annotated[
    bool, typer.Option("-p", "--print-config", help="Print the whole configuration and end.")
]
_PrintImportant = Annotated[
    bool, typer.Option("-m", "--print-important-config", help="Print its important part and end.")
]


@app.command()
def standalone(
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the store; in your data folder if not given."),
    ] = None,
    namesrv_port: Annotated[
        str, typer.Option(metavar="PORT", help="Port of the name server; 0 picks one.")
    ] = "9876",
    broker_port: Annotated[
        str, typer.Option(metavar="PORT", help="Port of the first broker; 0 picks one for each.")
    ] = "10911",
    brokers: Annotated[
        str, typer.Option(metavar="N", help="How many brokers; more than one: a process each.")
    ] = "1",
    host: Annotated[
        str, typer.Option(metavar="ADDR", help="Address to listen on; 0.0.0.0 is every one.")
    ] = "127.0.0.1",
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address that clients are told, if it is another.")
    ] = None,
    http_port: _HttpPort = None,
    log_file: _LogFile = None,
    log_level: _Level = LogLevel.INFO,
) -> None:
    """Run a name server and a broker together."""
    from kourou.cli.standalone import StandaloneLog, default_store, run_standalone
    from kourou.standalone.options import StandaloneOptions

    def action() -> None:
        options = StandaloneOptions(
            store=(store or default_store()).absolute(),
            namesrv_port=whole_number("--namesrv-port", namesrv_port),
            broker_port=whole_number("--broker-port", broker_port),
            brokers=whole_number("--brokers", brokers),
            host=host,
            advertise=advertise,
            http_port=None if http_port is None else whole_number("--http-port", http_port),
        )
        run_standalone(options, StandaloneLog(log_file, log_level))

    run_command("kourou standalone", action)


@app.command()
def broker(
    config: _ConfigFile = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Address to listen on (bindAddress).")
    ] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help="Port to listen on (listenPort).")] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="Address that clients are told (brokerIP1).")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the store (storePathRootDir).")
    ] = None,
    home: _Home = None,
    http_port: _HttpPort = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key; may be repeated.")
    ] = None,
    log_file: _LogFile = None,
    log_level: _Level = LogLevel.INFO,
    print_config: _PrintConfig = False,
    print_important_config: _PrintImportant = False,
) -> None:
    """Run a broker."""
    from kourou.cli.broker import BrokerOptions, run_broker
    from kourou.cli.pairs import parse_pairs

    given = {
        "bindAddress": host,
        "listenPort": port,
        "brokerIP1": advertise,
        "storePathRootDir": store,
        "rocketmqHome": home,
        "namesrvAddr": namesrv_addr,
        "httpPort": http_port,
    }

    def action() -> None:
        options = BrokerOptions(
            config_file=config,
            overrides=_texts(given),
            option_names=_BROKER_OPTIONS,
            settings=parse_pairs("--set", settings or []),
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
    host: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Address to listen on (bindAddress).")
    ] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help="Port to listen on (listenPort).")] = None,
    home: _Home = None,
    http_port: _HttpPort = None,
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

    given = {"bindAddress": host, "listenPort": port, "rocketmqHome": home, "httpPort": http_port}
    options = ServerOptions(
        config_file=config,
        overrides=_texts(given),
        option_names=_NAMESRV_OPTIONS,
        namesrv_addr=namesrv_addr,
        print_config=print_config,
        print_important_config=print_important_config,
        log_file=log_file,
        log_level=log_level,
    )
    run_command("kourou namesrv", lambda: run_namesrv(options))


@app.command()
def demo(
    spark: Annotated[
        bool,
        typer.Option("--spark/--no-spark", help="Let Spark read a topic at the end, if it is installed."),
    ] = True,
) -> None:
    """Show what a cluster of two brokers does: order, delays, transactions, retries, replay; then Spark."""
    from kourou.cli.demo import run_demo

    run_command("kourou demo", lambda: run_demo(spark=spark))


@app.command()
def ready(
    broker_addr: Annotated[
        list[str] | None,
        typer.Option("-b", "--brokerAddr", metavar="ADDR", help="A broker, host:port; may be repeated."),
    ] = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR", help="A server by its --http-port, host:port; may be repeated."),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=86_400, help="Ask again for so long.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Ask whether servers are ready: name servers answer, brokers store a message. Exit code 1: not all.

    Without options: the broker at 127.0.0.1:10911. With both, brokers have to be registered there too. With
    --http a server says itself whether it is ready, and nothing is stored.
    """
    from kourou.cli.ready import run_ready

    def action() -> None:
        run_ready(broker_addr or [], namesrv_addr, http or [], wait, as_json=as_json)

    run_command("kourou ready", action)


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
def admin(words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND ...")] = None) -> None:
    """Administer a cluster: the commands of mqadmin, and more."""
    from kourou.cli.admin.run import main as run_admin

    run_admin("kourou admin", words or [])


def _texts(given: dict[str, Any]) -> dict[str, str]:
    """The keys that options set."""
    return {key: str(value) for key, value in given.items() if value is not None}


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
