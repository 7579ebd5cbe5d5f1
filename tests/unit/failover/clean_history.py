"""A history that a broker set without faults could have: several producers at once, outcomes of all kinds,
atomic publishes, masters that change, a group of consumers with a rebalance, final readers. All by a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import count
from typing import Any

from tests.failover.history import Operation

BROKER = "broker-a"
GROUP = "group"
_RECORD_BYTES = 100


def queue_name(number: int) -> str:
    return f"Topic/{BROKER}/{number}"


class CleanHistory:
    """A broker set with a log, its clients, and what they write down."""

    def __init__(self, seed: int, sends: int, *, queues: int = 3, producers: int = 4) -> None:
        self._chance = random.Random(seed)
        self.operations: list[Operation] = []
        self.log: dict[str, list[str]] = {queue_name(number): [] for number in range(queues)}
        self._numbers = count()
        self._clock_ns = 1_000
        self._free_ns: dict[str, int] = defaultdict(int)
        self._phy_offset = 0
        self._epoch = 0
        self._producers = [f"producer-{number}" for number in range(producers)]
        self._change_master()
        for _ in range(sends):
            if self._chance.random() < 0.01:
                self._change_master()
            self._step()
        self._consume()
        self._scan()

    # -- the broker set --------------------------------------------------------------------------

    def _change_master(self) -> None:
        self._epoch += 1
        self._phy_offset += _RECORD_BYTES
        self._write("epoch", "set", key=BROKER, epoch=self._epoch, phy_offset=self._phy_offset)
        self._write("reign", "set", key=BROKER, epoch=self._epoch, address=self._address)

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{10_000 + self._epoch % 3}"

    def _store(self, queue: str, value: str) -> dict[str, Any]:
        """What an acknowledgement says."""
        self.log[queue].append(value)
        self._phy_offset += _RECORD_BYTES
        return {
            "queue": queue,
            "queue_offset": len(self.log[queue]) - 1,
            "phy_offset": self._phy_offset,
            "address": self._address,
        }

    # -- producers -------------------------------------------------------------------------------

    def _step(self) -> None:
        self._clock_ns += self._chance.randint(1, 20)
        free = [each for each in self._producers if self._free_ns[each] < self._clock_ns]
        if free:
            kinds = (self._send, self._send, self._send_batch, self._transact, self._publish)
            self._chance.choice(kinds)(self._chance.choice(free))

    def _times(self, process: str) -> dict[str, int]:
        """Of an operation that the broker executes now."""
        earliest = max(self._free_ns[process] + 1, self._clock_ns - 50)
        end_ns = self._clock_ns + self._chance.randint(0, 50)
        self._free_ns[process] = end_ns
        return {"begin_ns": self._chance.randint(earliest, self._clock_ns), "end_ns": end_ns}

    def _send(self, process: str) -> None:
        queue, value = self._chance.choice(list(self.log)), f"v{next(self._numbers)}"
        is_idempotent = process.endswith("0")
        fields: dict[str, Any] = {"value": value, "is_idempotent": is_idempotent, **self._times(process)}
        fate = self._chance.random()
        if fate < 0.05:
            self._write("send", process, outcome="failed", **fields)
        elif fate < 0.15:
            if fate < 0.1:
                self._store(queue, value)
            self._write("send", process, outcome="unknown", unsure_attempts=1, **fields)
        else:
            unsure = self._chance.randint(1, 2) if fate < 0.2 else 0
            for _ in range(self._chance.randint(0, unsure) if not is_idempotent else 0):
                self._store(queue, value)  # by an attempt whose answer was lost
            place = self._store(queue, value)
            self._write("send", process, outcome="ok", unsure_attempts=unsure, **fields, **place)

    def _send_batch(self, process: str) -> None:
        queue, times = self._chance.choice(list(self.log)), self._times(process)
        is_idempotent = process.endswith("0")
        fields: dict[str, Any] = {"is_idempotent": is_idempotent, "batch": times["end_ns"], **times}
        fate, values = self._chance.random(), self._new_values()
        for index, value in enumerate(values):
            if is_idempotent and fate < 0.2:
                # Unknown, and a fail-over has kept its begin; or none of it, or all.
                if index < round(10 * fate):
                    self._store(queue, value)
                known: dict[str, Any] = {"outcome": "unknown", "unsure_attempts": 1}
            else:
                known = {"outcome": "ok", "unsure_attempts": int(is_idempotent and fate < 0.4)}
                known |= self._store(queue, value)
            self._write("send", process, value=value, index=index, **fields, **known)

    def _publish(self, process: str) -> None:
        times, values = self._times(process), self._new_values()
        outcome, is_stored = self._chance.choice(
            (("ok", True), ("ok", True), ("unknown", True), ("unknown", False), ("failed", False))
        )
        queues = self._chance.choices(list(self.log), k=2)
        for index, value in enumerate(values):
            if is_stored:
                self._store(self._chance.choice(queues), value)
            fields = {"batch": times["end_ns"], "index": index, **times}
            self._write("publish", process, value=value, outcome=outcome, **fields)

    def _new_values(self) -> list[str]:
        return [f"v{next(self._numbers)}" for _ in range(self._chance.randint(2, 5))]

    def _transact(self, process: str) -> None:
        value, decision = f"v{next(self._numbers)}", self._chance.choice(("commit", "rollback"))
        outcome = self._chance.choice(("ok", "ok", "ok", "unknown"))
        if outcome == "unknown":
            decision = "rollback"
        if decision == "commit":
            self._store(self._chance.choice(list(self.log)), value)
        fields = {"value": value, "decision": decision, **self._times(process)}
        self._write("transaction", process, outcome=outcome, unsure_attempts=outcome == "unknown", **fields)
        if self._chance.random() < 0.3:
            self._write("check", process, value=value, decision=decision, outcome="ok")

    # -- readers ---------------------------------------------------------------------------------

    def _consume(self) -> None:
        for queue, values in self.log.items():
            middle = len(values) // 2
            back = max(0, middle - 3)  # where the second consumer begins: delivery is at least once
            for process, assignment, offsets, committed in (
                ("consumer-0", 1, range(middle), middle),
                ("consumer-1", 1, range(back, len(values)), max(0, len(values) - 3)),
            ):
                # The second one may begin behind what the first one has committed: offsets go back, too.
                self._write_offset(queue, min(back, offsets.start))
                for queue_offset in offsets:
                    self._write(
                        "deliver",
                        process,
                        group=GROUP,
                        assignment=assignment,
                        queue=queue,
                        queue_offset=queue_offset,
                        value=values[queue_offset],
                        outcome="ok",
                    )
                self._write_offset(queue, committed)

    def _write_offset(self, queue: str, queue_offset: int) -> None:
        fields: dict[str, Any] = {"queue": queue, "amount": queue_offset, "address": self._address}
        self._write("offset", "observer", group=GROUP, outcome="ok", **fields)

    def _scan(self) -> None:
        for queue, values in self.log.items():
            for queue_offset, value in enumerate(values):
                place = {"queue": queue, "queue_offset": queue_offset}
                self._write("read", "reader", value=value, outcome="ok", **place)
            fields: dict[str, Any] = {"queue": queue, "outcome": "ok"}
            self._write("scan", "reader", low_offset=0, high_offset=len(values), **fields)
            self._write("drain", "reader", group=GROUP, **fields)

    def _write(self, kind: Any, process: str, **fields: Any) -> None:
        self._clock_ns += 1
        fields = {"begin_ns": self._clock_ns, "end_ns": self._clock_ns, **fields}
        number = len(self.operations)
        self.operations.append(Operation(process=process, number=number, kind=kind, **fields))
