"""`kourou pipeline`: jobs on Spark over topics.

Parses options; the work is in kourou.spark.pipelines, imported when it is asked for: PySpark costs seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kourou.cli import pipeline_archive, pipeline_replay, pipeline_sql, pipeline_stats
from kourou.cli.problems import run_command
from kourou.errors import ConfigError

pipeline_app = typer.Typer(
    name="pipeline",
    help="Run jobs on Spark: declared pipelines, archive, replay, SQL over topics, statistics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@pipeline_app.callback()
def pipeline() -> None:
    """Run jobs on Spark: declared pipelines, archive, replay, SQL over topics, statistics."""


@pipeline_app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="What to read, do and write.")],
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master, as local[4] or spark://host:7077."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only look for mistakes, and whether the topics are there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print progress and rows as JSON.")] = False,
) -> None:
    """Run the pipeline that a file declares.

    All mistakes in the file are told at once, before Spark starts. Ctrl-C ends the run behind the batches
    that are under way; started again, it goes on there. Exit code 1: it failed.
    """

    def action() -> None:
        try:
            from kourou.spark.pipelines.run import RunRequest, run_pipeline
        except ImportError as error:
            raise ConfigError(f"pipelines need PySpark: pip install 'kourou[spark]' ({error})") from error
        run_pipeline(RunRequest(file, master=master, check_only=check, as_json=as_json))

    run_command("kourou pipeline run", action)


for _module in (pipeline_archive, pipeline_replay, pipeline_sql, pipeline_stats):
    _module.register(pipeline_app)
