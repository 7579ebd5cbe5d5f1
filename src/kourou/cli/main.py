"""`kourou`: every command of Kourou under one name."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from kourou import __version__
from kourou.cli.option_types import FloatRange, choice_option
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineCommand, OneLineGroup, whole_number
from kourou.logs import LogLevel
from kourou.wording import nearest

# Keys that have options of their own.
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
_PROXY_OPTIONS: Final = {
    "bindAddress": "--host",
    "grpcServerPort": "--port",
    "rocketmqHome": "--home",
    "httpPort": "--http-port",
    "namesrvAddr": "-n",
}


# Commands that load the client, which takes 0.2 s, so neither the list nor the start of a server imports
# them: module, command, and short help. First a server, then those for daily work.
_CONSOLE: Final = {"console": ("console", "console_app", "Serve the web console for a cluster.")}
_DAILY: Final = {
    "topic": ("daily.topic", "topic_app", "List, show, create and delete topics."),
    "group": ("daily.group", "group_app", "List, show, reset and delete consumer groups."),
    "send": ("daily.send", "send", "Send a message: BODY, a file, or standard input."),
    "tail": ("daily.tail", "tail", "Print the last messages of a topic, then new ones."),
    "trace": ("daily.trace", "trace_app", "Show the trace of a message; export traces to OpenTelemetry."),
    "context": (
        "daily.context",
        "context_app",
        "Save clusters by name, and choose the one that commands use.",
    ),
    "completion": ("daily.completion", "completion", "Print a shell completion script for kourou."),
}

_LATE: Final = {**_CONSOLE, **_DAILY}

# Other programs' words for starting and stopping servers, with our commands.
_OTHER_PROGRAMS: Final = {
    "status": "kourou ready",
    "start": "kourou standalone",
    "stop": "mqshutdown standalone",
    "shutdown": "mqshutdown standalone",
}


class _Commands(OneLineGroup):
    """The commands of `kourou`. Further groups are loaded on demand: they take 6 ms, which would delay the
    start of a server."""

    other_words = _OTHER_PROGRAMS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names: servers, daily work, others."""
        self._load_groups()
        names = [name for name in super().list_commands(ctx) if name not in _LATE]
        servers, behind = names.index("proxy") + 1, names.index("admin")
        return [*names[:servers], *_CONSOLE, *names[servers:behind], *_DAILY, *names[behind:]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name, or None."""
        if cmd_name in _LATE and cmd_name not in self.commands:
            module, attribute, _ = _LATE[cmd_name]
            loaded = importlib.import_module(f"kourou.cli.{module}")
            self.add_command(getattr(loaded, attribute), cmd_name)
        elif cmd_name not in self.commands:
            self._load_groups()
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._short_help(ctx, name, limit)) for name in names])

    def _short_help(self, ctx: click.Context, name: str, limit: int) -> str:
        if name in _LATE:
            return _LATE[name][2]
        command = self.get_command(ctx, name)
        assert command is not None
        return command.get_short_help_str(limit)

    def suggested_command(self, ctx: click.Context, word: str) -> str | None:
        """The command that a mistyped word probably means, including those of `kourou admin`."""
        from kourou.cli.admin.command import AdminCommand
        from kourou.cli.admin.registry import all_commands, find

        if (command := find(word)) is not None:
            return f"kourou admin {command.name}"
        if (meant := super().suggested_command(ctx, word)) is not None:
            return meant
        # Without commands that this version lacks.
        there = (command.name for command in all_commands() if isinstance(command, AdminCommand))
        of_admin = nearest(word, there)
        return of_admin and f"kourou admin {of_admin}"

    def _load_groups(self) -> None:
        from kourou.cli.bench.command import bench_app
        from kourou.cli.pipeline.command import pipeline_app
        from kourou.cli.quickstart import quickstart_app
        from kourou.cli.store.command import store_app

        for group in (bench_app, pipeline_app, quickstart_app, store_app):
            self.add_command(group)


@click.group(
    name="kourou",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(
    __version__, prog_name="kourou", message="%(prog)s %(version)s", help="Show the version."
)
def app() -> None:
    """RocketMQ in Python.

    mqshutdown standalone (or broker, namesrv, proxy) stops servers that run in the background.
    """


# Options of several commands.
_config_file = click.option(
    "-c", "--config", "--configFile", type=Path, metavar="FILE", help="Apache's configuration file."
)
_namesrv_addr = click.option(
    "namesrv_addr", "-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."
)
_host = click.option("--host", metavar="ADDR", help="Address to listen on (bindAddress).")
_port = click.option("--port", metavar="PORT", help="Port to listen on (listenPort).")
_home = click.option("--home", type=Path, metavar="DIR", help="Folder of logs and data (rocketmqHome).")
_http_port = click.option(
    "--http-port",
    metavar="PORT",
    help="Serve health checks (/readyz, /livez) and metrics (/metrics) by HTTP on this port; 0 picks one.",
)
_log_file = click.option("--log-file", metavar="FILE", help="Log file; - logs to the console.")
_log_level = choice_option("--log-level", default=LogLevel.INFO, help="Minimum log level.")
_print_config = click.option(
    "-p", "--print-config", is_flag=True, help="Print the whole configuration and exit."
)
_print_important = click.option(
    "-m",
    "--print-important-config",
    is_flag=True,
    help="Print the important part of the configuration and exit.",
)


@app.command()
@click.option("--store", type=Path, metavar="DIR", help="Folder of the store; default: in your data folder.")
@click.option("--namesrv-port", metavar="PORT", default="9876", help="Port of the name server; 0 picks one.")
@click.option(
    "--broker-port", metavar="PORT", default="10911", help="Port of the first broker; 0 picks one for each."
)
@click.option(
    "--brokers", metavar="N", default="1", help="Number of brokers; if more than one, each is a process."
)
@click.option(
    "--slaves",
    metavar="N",
    default="0",
    help="Slaves of each broker; each is a process, restarted if it dies.",
)
@click.option(
    "--sync",
    is_flag=True,
    help="Acknowledge a message when a slave has it (SYNC_MASTER); always so with --failover.",
)
@click.option(
    "--failover",
    is_flag=True,
    help="A slave becomes master when the master dies. Needs --slaves and the program etcd, which it runs.",
)
@click.option(
    "--auth",
    is_flag=True,
    help="Only accounts may do something; the first start makes an administrator and prints its keys.",
)
@click.option("--host", metavar="ADDR", default="127.0.0.1", help="Address to listen on; 0.0.0.0 means all.")
@click.option("--advertise", metavar="HOST", help="Address that clients connect to, if different.")
@_http_port
@click.option(
    "--grpc-port",
    metavar="PORT",
    help="Serve clients of RocketMQ 5 by gRPC on this port, usually 8081; 0 picks one.",
)
@click.option("--console", is_flag=True, help="Serve the web console, too.")
@click.option("--console-port", metavar="PORT", default="8080", help="Port of the console; 0 picks one.")
@_log_file
@_log_level
def standalone(
    *,
    store: Path | None,
    namesrv_port: str,
    broker_port: str,
    brokers: str,
    slaves: str,
    sync: bool,
    failover: bool,
    auth: bool,
    host: str,
    advertise: str | None,
    http_port: str | None,
    grpc_port: str | None,
    console: bool,
    console_port: str,
    log_file: str | None,
    log_level: LogLevel,
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
            slaves=whole_number("--slaves", slaves),
            sync=sync,
            failover=failover,
            host=host,
            advertise=advertise,
            http_port=None if http_port is None else whole_number("--http-port", http_port),
            grpc_port=None if grpc_port is None else whole_number("--grpc-port", grpc_port),
            has_metrics=console,
        )
        console_at = whole_number("--console-port", console_port) if console else None
        run_standalone(options, StandaloneLog(log_file, log_level), console_port=console_at, auth=auth)

    run_command("kourou standalone", action)


@app.command()
@_config_file
@_namesrv_addr
@_host
@_port
@click.option("--advertise", metavar="HOST", help="Address that clients connect to (brokerIP1).")
@click.option("--store", type=Path, metavar="DIR", help="Folder of the store (storePathRootDir).")
@_home
@_http_port
@click.option("settings", "--set", multiple=True, metavar="KEY=VALUE", help="Set a key; may be repeated.")
@click.option("--enable-proxy", is_flag=True, help="Also serve clients of RocketMQ 5 by gRPC.")
@click.option(
    "proxy_config", "--proxy-config", type=Path, metavar="FILE", help="Its configuration, rmq-proxy.json."
)
@_log_file
@_log_level
@_print_config
@_print_important
def broker(
    *,
    config: Path | None,
    namesrv_addr: str | None,
    host: str | None,
    port: str | None,
    advertise: str | None,
    store: Path | None,
    home: Path | None,
    http_port: str | None,
    settings: tuple[str, ...],
    enable_proxy: bool,
    proxy_config: Path | None,
    log_file: str | None,
    log_level: LogLevel,
    print_config: bool,
    print_important_config: bool,
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
            settings=parse_pairs("--set", settings),
            print_config=print_config,
            print_important_config=print_important_config,
            log_file=log_file,
            log_level=log_level,
            has_proxy=enable_proxy,
            proxy_config_file=proxy_config,
        )
        run_broker(options)

    run_command("kourou broker", action)


@app.command()
@_config_file
@_host
@_port
@_home
@_http_port
@_log_file
@_log_level
@_print_config
@_print_important
@click.option(
    "namesrv_addr", "-n", "--namesrvAddr", hidden=True, help="Ignored: a name server has no name server."
)
def namesrv(
    *,
    config: Path | None,
    host: str | None,
    port: str | None,
    home: Path | None,
    http_port: str | None,
    log_file: str | None,
    log_level: LogLevel,
    print_config: bool,
    print_important_config: bool,
    namesrv_addr: str | None,
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
@click.option(
    "-c",
    "--config",
    "--configFile",
    type=Path,
    metavar="FILE",
    help="Apache's configuration, rmq-proxy.json.",
)
@_namesrv_addr
@click.option("--host", metavar="ADDR", help="Address to listen on (bindAddress); default: 0.0.0.0, all.")
@click.option("--port", metavar="PORT", help="Port of gRPC clients (grpcServerPort); default: 8081.")
@_home
@_http_port
@click.option("settings", "--set", multiple=True, metavar="KEY=VALUE", help="Set a key; may be repeated.")
@_log_file
@_log_level
@_print_config
@_print_important
def proxy(
    *,
    config: Path | None,
    namesrv_addr: str | None,
    host: str | None,
    port: str | None,
    home: Path | None,
    http_port: str | None,
    settings: tuple[str, ...],
    log_file: str | None,
    log_level: LogLevel,
    print_config: bool,
    print_important_config: bool,
) -> None:
    """Run a proxy for gRPC clients in front of brokers."""
    from kourou.cli.pairs import parse_pairs
    from kourou.cli.proxy import run_proxy
    from kourou.cli.serving import ServerOptions

    given = {
        "bindAddress": host,
        "grpcServerPort": port,
        "rocketmqHome": home,
        "namesrvAddr": namesrv_addr,
        "httpPort": http_port,
    }

    def action() -> None:
        options = ServerOptions(
            config_file=config,
            overrides={**parse_pairs("--set", settings), **_texts(given)},
            option_names=_PROXY_OPTIONS,
            print_config=print_config,
            print_important_config=print_important_config,
            log_file=log_file,
            log_level=log_level,
        )
        run_proxy(options)

    run_command("kourou proxy", action)


@app.command()
@click.option("--spark/--no-spark", default=True, help="Finally read a topic with Spark, if it is installed.")
def demo(*, spark: bool) -> None:
    """Demonstrate a cluster of two brokers: order, delays, transactions, retries, replay; then Spark."""
    from kourou.cli.demo.command import run_demo

    run_command("kourou demo", lambda: run_demo(spark=spark))


@app.command()
@click.option(
    "broker_addr",
    "-b",
    "--brokerAddr",
    multiple=True,
    metavar="ADDR",
    help="A broker, host:port; may be repeated.",
)
@_namesrv_addr
@click.option(
    "--http",
    multiple=True,
    metavar="ADDR",
    help="A server by its --http-port, host:port; may be repeated.",
)
@click.option(
    "--wait", type=FloatRange(0, 86_400), default=0.0, metavar="SECONDS", help="Keep trying for this long."
)
@click.option(
    "--acl",
    metavar="FILE",
    help="File with accessKey and secretKey; default ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.",
)
@click.option("--tls", is_flag=True, help="Encrypt; any certificate is trusted.")
@click.option("tls_config", "--tls-config", metavar="FILE", help="Encrypt with the settings of this file.")
@click.option("as_json", "--json", is_flag=True, help="Print the result as JSON.")
def ready(
    *,
    broker_addr: tuple[str, ...],
    namesrv_addr: str | None,
    http: tuple[str, ...],
    wait: float,
    acl: str | None,
    tls: bool,
    tls_config: str | None,
    as_json: bool,
) -> None:
    """Check that servers are ready: name servers answer, brokers store a message. Exit code 1: not all are.

    Without options: the broker at 127.0.0.1:10911. With both, brokers must also be registered. With --http a
    server reports whether it is ready, and nothing is stored. Brokers with access control need the keys of an
    administrator.
    """
    from kourou.cli.ready import run_ready

    files = {"acl": acl, "tls-config": tls_config, "tls": "" if tls else None}
    connecting = {name: value for name, value in files.items() if value is not None}
    run_command(
        "kourou ready",
        lambda: run_ready(broker_addr, namesrv_addr, http, wait, as_json=as_json, connecting=connecting),
    )


@app.command()
@click.option("as_json", "--json", is_flag=True, help="Print the result as JSON.")
def version(*, as_json: bool) -> None:
    """Print the version, and whether brokers of this installation use the compiled kernel."""
    from kourou.cli.version import run_version

    run_command("kourou version", lambda: run_version(as_json=as_json))


class _AdminCommand(OneLineCommand):
    """`kourou admin`, whose arguments are parsed and completed like mqadmin's."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The completions at the cursor."""
        from kourou.cli.admin.completion import next_words

        kind, words = next_words(ctx.params["words"] or ())
        if kind == "files":
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


@app.command(cls=_AdminCommand, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument(
    "words",
    nargs=-1,
    metavar="COMMAND ...",
    shell_complete=lambda ctx, _, incomplete: ctx.command.shell_complete(ctx, incomplete),
)
def admin(*, words: tuple[str, ...]) -> None:
    """Administer a cluster: the commands of mqadmin, and more."""
    from kourou.cli.admin.run import main as run_admin

    run_admin("kourou admin", words)


def _texts(given: dict[str, Any]) -> dict[str, str]:
    """The keys set by options."""
    return {key: str(value) for key, value in given.items() if value is not None}


def main() -> None:
    """Entry point."""
    if "_KOUROU_COMPLETE" in os.environ:
        from kourou.cli.daily.completion import use_own_completion

        use_own_completion()
    app()


if __name__ == "__main__":
    main()
