"""Findings: the promises that a history can break, and the report of a check.

What is a fault:

- LOST: a send was acknowledged, and its value is not among those that the final reader found. A record that
  the final reader could not find because the broker had deleted it (below `low_offset`) does not count.
- STORED_TWICE: a value has more offsets than attempts could give it. An idempotent send has one, whatever
  became of its attempts. Any other has one for its acknowledgement and one for each attempt that may have
  stored it (`unsure_attempts`): a client that repeats such an attempt accepts a duplicate.
- TWO_VALUES: acknowledgements, readers and consumers disagree about what is at one offset.
- REORDERED: of two acknowledged sends of a process to one queue the second began after the first had ended,
  and has the lower offset; or messages of a batch or a publish are not in its order. Unknown sends have no
  order: a request may arrive long after its client has given up.
- REFUSED_BUT_READ: a value that no attempt can have stored was read.
- NEVER_SENT: a value was read that is not of this history.
- BOTH_OUTCOMES: a producer committed a transaction and rolled it back, itself or by the answer to a check.
- ROLLED_BACK_BUT_READ, COMMITTED_BUT_MISSING: a transaction's value is visible, or not, against the decision.
  A half message that was not acknowledged counts as rolled back, as for the client.
- TORN_PUBLISH: the final reader found some messages of an atomic publish, and not the others, whatever the
  client knows of the outcome. COMMITTED_BUT_MISSING: it found none of one that was acknowledged. Neither is
  looked for where a broker has deleted records.
- TWO_EPOCHS: an acknowledgement of an epoch began after the first acknowledgement of a later one had ended.
- WRONG_MASTER: a broker acknowledged a record of an epoch in which another was master.
- SKIPPED: a consumer that gets a queue in order jumped over an offset, without having lost the queue
  meanwhile; or the final reader has a hole. A consumer may go back: delivery is at least once.
- UNDELIVERED: a group that had the time to consume a queue never got an offset.
- OFFSET_AHEAD: a group's offset is beyond a message that was not delivered to the group until then. An offset
  may go back: brokers copy offsets every second, and a consumer that loses a queue may be late.
- UNREAD_QUEUE: sends to a queue were acknowledged, and no final reader has read it: nothing is known.

The epoch of an acknowledgement is that of the record (its physical offset in the final master's log). An
idempotent send with an unsure attempt has none: its acknowledgement may be given in a later epoch than that
in which the record was stored.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.failover.history import Operation

_MAX_SHOWN: Final = 10
"""Findings of one kind in a text."""


class Fault(enum.Enum):
    """What a finding says; see the module."""

    LOST = "acknowledged, but not stored in the end"
    STORED_TWICE = "stored more often than its attempts allow"
    TWO_VALUES = "two values at one offset"
    REORDERED = "stored against the order of acknowledgements"
    REFUSED_BUT_READ = "refused, but read"
    NEVER_SENT = "read, but never sent"
    BOTH_OUTCOMES = "a transaction was committed and rolled back"
    ROLLED_BACK_BUT_READ = "a transaction was rolled back, but read"
    COMMITTED_BUT_MISSING = "a transaction or a publish was committed, but is not visible in the end"
    TORN_PUBLISH = "some messages of an atomic publish are visible in the end, others are not"
    TWO_EPOCHS = "acknowledged in an epoch after a later one had begun to acknowledge"
    WRONG_MASTER = "acknowledged by a broker that was not master of the epoch"
    SKIPPED = "an offset was skipped"
    UNDELIVERED = "never delivered to a group"
    OFFSET_AHEAD = "a group's offset is beyond what was delivered to it"
    UNREAD_QUEUE = "a queue was not read in the end"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise, and the operations that show it."""

    fault: Fault
    text: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return f"{self.fault.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a history shows. `counts` are for people: how much was done."""

    findings: list[Finding]
    counts: dict[str, int]

    @property
    def faults(self) -> Counter[Fault]:
        """How many findings there are of each kind."""
        return Counter(finding.fault for finding in self.findings)

    def text(self) -> str:
        """The counts, and the first findings of each kind."""
        lines = [", ".join(f"{name} {count}" for name, count in self.counts.items())]
        for fault, count in self.faults.items():
            lines.append(f"{fault.name} ({fault.value}): {count}")
            texts = [finding.text for finding in self.findings if finding.fault is fault]
            lines += [f"  {text}" for text in texts[:_MAX_SHOWN]]
            if count > _MAX_SHOWN:
                lines.append(f"  and {count - _MAX_SHOWN} more")
        return "\n".join(lines)
