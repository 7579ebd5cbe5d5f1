"""`kourou pipeline`: jobs on Spark over topics.

Parses options; kourou.spark.pipelines does the work, imported on demand: PySpark takes seconds.
"""

from __future__ import annotations

from pathlib import Path

import click

from kourou.cli.pipeline.archive import archive
from kourou.cli.pipeline.replay import replay
from kourou.cli.pipeline.sql import sql
from kourou.cli.pipeline.stats import stats
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineGroup
from kourou.errors import ConfigError

pipeline_app = OneLineGroup(
    "pipeline", help="Run jobs on Spark: declared pipelines, archive, replay, SQL over topics, statistics."
)
pipeline_app.other_words = dict.fromkeys(("check", "validate"), "kourou pipeline run --check")


@pipeline_app.command()
@click.argument("file", type=Path, metavar="FILE.yaml")
@click.option("--master", metavar="URL", help="Spark master, such as local[4] or spark://host:7077.")
@click.option("--check", is_flag=True, help="Only check the file, and that the topics exist.")
@click.option("as_json", "--json", is_flag=True, help="Print progress and rows as JSON.")
@click.option(
    "publish_to",
    "--publish-progress",
    metavar="LIST",
    help="Publish progress to the cluster of these name servers, for its console.",
)
def run(*, file: Path, master: str | None, check: bool, as_json: bool, publish_to: str | None) -> None:
    """Run the pipeline declared in a file.

    FILE.yaml declares sources, steps and sinks.

    All mistakes in the file are reported at once, before Spark starts. Ctrl-C stops after the current
    batches; a new run continues there. Exit code 1: it failed.
    """

    def action() -> None:
        try:
            from kourou.spark.pipelines.run import RunRequest, run_pipeline
        except ImportError as error:
            raise ConfigError(f"pipelines need PySpark: pip install 'kourou[spark]' ({error})") from error
        run_pipeline(
            RunRequest(file, master=master, check_only=check, as_json=as_json, publish_to=publish_to)
        )

    run_command("kourou pipeline run", action)


for _command in (archive, replay, sql, stats):
    pipeline_app.add_command(_command)
