"""Names of topics, groups and contexts that a shell completes."""

from __future__ import annotations

import asyncio
import os

import click

from kourou.errors import KourouError


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics of the cluster on the command line; none if it does not answer in time."""
    # Retry and dead-letter topics only if the prefix matches.
    return _of_cluster("topics" if incomplete.startswith("%") else "user topics", context, incomplete)


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Consumer groups of the cluster on the command line."""
    return _of_cluster("groups", context, incomplete)


def complete_contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Saved contexts."""
    from kourou.cli.contexts import read_contexts

    try:
        names = sorted(read_contexts(os.environ).contexts)
    except KourouError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _of_cluster(kind: str, context: click.Context, incomplete: str) -> list[str]:
    from kourou.cli.admin.completion import cluster_names
    from kourou.cli.daily.cluster_command import DEFAULT_NAMESRV, connecting_options

    given = connecting_options(dict(context.params))
    try:
        found = asyncio.run(cluster_names(kind, given, default_namesrv=DEFAULT_NAMESRV))
    except (KourouError, TimeoutError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]
