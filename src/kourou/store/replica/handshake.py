"""Whether a slave's log continues in its master's, and from where: the decision about a hello.

Pure: the master's log comes as numbers and a function that reads it. A slave that cannot go on gets the
reason and both offsets; nothing is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kourou.protocol.ha import Epoch, LogTail, MasterHello, SlaveHello
from kourou.protocol.layout import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLog:
    """The log of a master when a slave connects. `read` returns None for bytes that are gone."""

    min_phy_offset: int
    max_phy_offset: int
    file_bytes: int
    epochs: tuple[Epoch, ...]
    read: Callable[[int, int], Buffer | None]


def first_offset(log: MasterLog, *, from_last_file: bool) -> int:
    """Where a slave begins whose log is empty: with all that the master has, or with its last file."""
    if not from_last_file:
        return log.min_phy_offset
    return max(log.min_phy_offset, log.max_phy_offset - log.max_phy_offset % log.file_bytes)


def answer_hello(
    hello: SlaveHello, log: MasterLog, *, cluster: str, broker_name: str, from_last_file: bool = False
) -> MasterHello:
    """What the master answers."""
    answer = MasterHello(
        epochs=log.epochs, min_phy_offset=log.min_phy_offset, max_phy_offset=log.max_phy_offset
    )
    refusal = _foreign(hello, log, cluster, broker_name)
    if refusal:
        return replace(answer, refusal=refusal)
    if hello.max_phy_offset == hello.min_phy_offset:
        return replace(answer, start_phy_offset=first_offset(log, from_last_file=from_last_file))
    common = common_end(hello.epochs, hello.max_phy_offset, log.epochs, log.max_phy_offset)
    refusal = _diverged(hello, log, common)
    if refusal:
        # If their ends differ although the epochs are the same, it is not known where that begins.
        parted = common if common < hello.max_phy_offset else -1
        return replace(answer, refusal=refusal, is_diverged=True, common_phy_offset=parted)
    if hello.max_phy_offset < log.min_phy_offset:
        return replace(
            answer,
            refusal=f"the slave's log ends at {hello.max_phy_offset}, the master's begins at "
            f"{log.min_phy_offset}: what is between was deleted; remove the slave's store to copy all of it",
        )
    return replace(answer, start_phy_offset=hello.max_phy_offset)


def _foreign(hello: SlaveHello, log: MasterLog, cluster: str, broker_name: str) -> str:
    if (hello.cluster, hello.broker_name) != (cluster, broker_name):
        return (
            f"a slave of broker {hello.broker_name} in cluster {hello.cluster}; "
            f"this is broker {broker_name} in cluster {cluster}"
        )
    if hello.broker_id <= 0:
        return f"the brokerId of a slave is greater than 0, not {hello.broker_id}"
    if hello.file_bytes != log.file_bytes:
        return (
            f"the slave's mappedFileSizeCommitLog is {hello.file_bytes}, the master's {log.file_bytes}: "
            "they must be the same"
        )
    return ""


def _diverged(hello: SlaveHello, log: MasterLog, common: int) -> str:
    """Why the slave's log is not the beginning of the master's; empty if it is."""
    if common < hello.max_phy_offset:
        return (
            f"the slave's log ends at {hello.max_phy_offset}, the master's at {log.max_phy_offset}; "
            f"they are the same up to {common} at most"
        )
    tail = hello.tail
    if tail is None or tail.phy_offset < log.min_phy_offset:
        return ""
    raw = log.read(tail.phy_offset, tail.size)
    if raw is not None and LogTail.of(tail.phy_offset, raw) != tail:
        return (
            f"the slave's log ends at {hello.max_phy_offset}, the master's at {log.max_phy_offset}; "
            f"they differ between {tail.phy_offset} and {tail.phy_offset + tail.size}"
        )
    return ""


def common_end(ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int) -> int:
    """How far two logs can be the same, by their epochs: up to the end of the last one that both have.
    Without epochs on one side, up to the end of the shorter log."""
    shorter = min(our_end, their_end)
    if not ours or not theirs:
        return shorter
    last = max((epoch for epoch in ours if epoch in theirs), default=None, key=lambda each: each.epoch)
    if last is None:
        # The reigns that one side has forgotten are not compared.
        return shorter if theirs[0].epoch > ours[-1].epoch else min(ours[0].start_phy_offset, shorter)
    return min(_epoch_end(ours, last, our_end), _epoch_end(theirs, last, their_end))


def _epoch_end(epochs: Sequence[Epoch], epoch: Epoch, log_end: int) -> int:
    following = epochs.index(epoch) + 1
    return epochs[following].start_phy_offset if following < len(epochs) else log_end
