"""Watches: all keys with a prefix, and then every change of them, whatever breaks in between.

    async for seen in watch(etcd, "/kourou/"):
        if isinstance(seen, Snapshot): ...    # replaces what was known
        else: ...                             # Changes, one revision after the other

After a break the watch goes on at the next member, behind the last revision that was seen. If etcd has
compacted the history meanwhile, everything is read again: another Snapshot.

A member that is paused or cut off is silent, like one without changes, and so is a connection whose other
end is gone. So after `idle_ms` without a change the stream is opened anew, behind the last revision that was
seen; if the member does not confirm that, the next one is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from kourou.errors import EtcdRefusedError, EtcdUnavailableError, RemotingError
from kourou.etcd.client import TRY_ELSEWHERE, UNAUTHENTICATED, EtcdClient
from kourou.etcd.operations import prefix_range
from kourou.etcd.values import Changes, Json, KeyValue, Snapshot, number

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.25
_OUT_OF_RANGE: Final = 11


class _CompactedError(Exception):
    """The revision to go on from is gone."""


async def watch(
    client: EtcdClient, prefix: str, *, idle_ms: int = 2_000
) -> AsyncIterator[Snapshot | Changes]:
    """Never ends by itself; EtcdRefusedError if the user may not read these keys."""
    while True:
        try:
            found = await client.get_prefix(prefix)
        except EtcdUnavailableError as error:
            _log.warning("watch of %s: %s", prefix, error)
            await asyncio.sleep(_PAUSE_S)
            continue
        yield Snapshot(found.revision, found.keys)
        seen = found.revision
        try:
            while True:
                async for changes in _follow(client, prefix, seen + 1, idle_ms):
                    yield changes
                    seen = changes.revision
        except _CompactedError:
            _log.info("watch of %s: revision %d is compacted; all keys are read again", prefix, seen + 1)


async def _follow(client: EtcdClient, prefix: str, start: int, idle_ms: int) -> AsyncIterator[Changes]:
    """The changes from a revision on, until the stream breaks, or there were none for a while."""
    request = {"create_request": {**prefix_range(prefix), "start_revision": str(start)}}
    try:
        async with client.stream("watch", request) as (address, answers):
            is_confirmed = False
            pending = asyncio.ensure_future(anext(answers))
            try:
                while True:
                    done, _ = await asyncio.wait([pending], timeout=idle_ms / 1000)
                    if not done and is_confirmed:
                        return
                    if not done:
                        raise EtcdUnavailableError([f"{address}: it is silent"], may_be_done=False)
                    result = pending.result()
                    is_confirmed = True
                    pending = asyncio.ensure_future(anext(answers))
                    if changes := _changes(result):
                        yield changes
            finally:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)
    except StopAsyncIteration:
        _log.info("watch of %s: the member ended it", prefix)
    except (RemotingError, EtcdUnavailableError, TimeoutError) as error:
        _log.info("watch of %s breaks: %s", prefix, error or "no answer")
    except EtcdRefusedError as error:
        if error.code == _OUT_OF_RANGE:
            raise _CompactedError from error
        if error.code not in {*TRY_ELSEWHERE, UNAUTHENTICATED}:
            raise
        _log.info("watch of %s breaks: %s", prefix, error)
    client.prefer_next()
    await asyncio.sleep(_PAUSE_S)


def _changes(result: Json) -> Changes | None:
    """What an answer says; None: nothing new."""
    if number(result, "compact_revision"):
        raise _CompactedError
    if result.get("canceled"):
        raise EtcdUnavailableError([str(result.get("cancel_reason", "cancelled"))], may_be_done=False)
    put: list[KeyValue] = []
    deleted: list[KeyValue] = []
    for event in result.get("events", ()):
        (deleted if event.get("type") == "DELETE" else put).append(KeyValue.of(event["kv"]))
    if not put and not deleted:
        return None
    # Not the revision of the header: while a watch catches up, that one is ahead of the changes.
    revision = max(each.modified_revision for each in (*put, *deleted))
    return Changes(revision, tuple(put), tuple(deleted))
