"""A small mutation run over the code that orders writes and checks bounds: each change must make a test fail.

    .venv/bin/python .ci/mutants.py            all mutants; exit status 1 if one survives
    .venv/bin/python .ci/mutants.py WORD...    those whose files or text contain one of these words

Works in a scratch copy of the tree. Mutants of the kernel are compiled by its tests. A mutant whose text is
not in its files, exactly once, is an error: move it along with the code (tests/unit/test_mutants.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
TIMEOUT_S = 300

KERNEL = "src/kourou/store/native/*.h"
CYCLE = "src/kourou/broker/storage/commit_cycle.py"
APPENDER = "src/kourou/store/log/log_appender.py"
READER = "src/kourou/store/read/get_message.py"
HAND_OVER = "src/kourou/broker/pull/hand_over_turns.py"
CONSUME_QUEUE = "src/kourou/store/queue/consume_queue.py"
FAST_PULLS = "src/kourou/broker/pull/fast_pull_path.py"
LARGE_READS = "src/kourou/transport/large_reads.py"
FAST_PATH = "src/kourou/broker/send/fast_send_path.py"

COLD_SHARE = "src/kourou/broker/pull/cold_read_share.py"

_KERNEL_TESTS = "tests/integration/kernel"
STAGED = (f"{_KERNEL_TESTS}/test_staged_entries.py",)
BOUNDS = (f"{_KERNEL_TESTS}/test_bounds.py",)
REPLICA = (f"{_KERNEL_TESTS}/test_read_records.py",)
SENDS = (f"{_KERNEL_TESTS}/test_encode_sends.py", "-k", "not any_sends")
LARGE_READ = ("tests/unit/transport/test_large_reads.py",)
LARGE = (f"{_KERNEL_TESTS}/test_large_bodies.py", "-k", "not any_sizes")
BATCHES = (f"{_KERNEL_TESTS}/test_encode_batch.py",)
FAST = (f"{_KERNEL_TESTS}/test_admission.py", f"{_KERNEL_TESTS}/test_encode_sends.py", "-k", "not any_sends")
GATHER = (f"{_KERNEL_TESTS}/test_gather.py",)
SIGNED = (f"{_KERNEL_TESTS}/test_signed_sends.py", "-k", "not any_signed_sends")
HASHES = (f"{_KERNEL_TESTS}/test_sha1.py", "-k", "not any_texts")
READ_AHEAD = "src/kourou/store/recovery/read_ahead.py"
RECOVERED = (f"{_KERNEL_TESTS}/test_recovery.py", "-k", "misleads or read_once")
CHECKSUMS = (f"{_KERNEL_TESTS}/test_checksum.py",)
PULLS = (f"{_KERNEL_TESTS}/test_answer_pulls.py",)
KEPT_PULLS = (f"{_KERNEL_TESTS}/test_kept_pulls.py",)
PULL_OUTPUT = (f"{_KERNEL_TESTS}/test_pull_output.py",)
COLD = (f"{_KERNEL_TESTS}/test_cold_reader.py",)
HAND_OVERS = ("tests/unit/broker/pull/test_hand_over_turns.py",)
DOUBT = (f"{_KERNEL_TESTS}/test_cold_doubt.py",)
FITS = (f"{_KERNEL_TESTS}/test_units_fit.py",)
SHARES = ("tests/unit/broker/pull/test_cold_read_share.py",)
SLOTS = (f"{_KERNEL_TESTS}/test_link_entries.py",)
CYCLES = ("tests/unit/broker/storage/test_commit_cycle.py",)
LONE_RUNS = ("tests/unit/broker/storage/test_lone_runs.py",)
PUTS = tuple(
    f"tests/unit/store/log/test_{name}.py" for name in ("log_appender", "put_batch", "put_many_records")
)
READS = ("tests/unit/store/read/test_get_message.py",)
# The kernel did not compile, a module could not be imported, or the machine is too busy to tell.
_TIMED_OUT = "the tests took longer than their limit"
_NOT_TESTED = ("subprocess.CalledProcessError", "error during collection", "no tests ran", _TIMED_OUT)


@dataclass(frozen=True)
class Mutant:
    """`old`, once in `files` (a path or a pattern), becomes `new`; one of `tests` (for pytest) must fail."""

    files: str
    old: str
    new: str
    tests: Sequence[str]

    def places(self, root: Path) -> list[Path]:
        """The files with the text, one for each time it is there."""
        paths = sorted(root.glob(self.files))
        return [path for path in paths for _ in range(path.read_text("utf-8").count(self.old))]


MUTANTS = (
    # -- bounds of the kernel --------------------------------------------------------------------
    Mutant(KERNEL, "send.queue_id >= run->queue_nums", "send.queue_id > run->queue_nums", BOUNDS),
    Mutant(KERNEL, "MAX_PROPERTIES_BYTES 32767", "MAX_PROPERTIES_BYTES 32768", BOUNDS),
    Mutant(KERNEL, "MAX_TOPIC_BYTES_V1 127", "MAX_TOPIC_BYTES_V1 126", BOUNDS),
    Mutant(KERNEL, "SEND_QUEUE_ID_MIN 0", "SEND_QUEUE_ID_MIN -1", BOUNDS),
    Mutant(KERNEL, "SEND_FLAG_MAX 2147483647", "SEND_FLAG_MAX 2147483648LL", BOUNDS),
    Mutant(KERNEL, "RECORD_RECONSUME_TIMES_AT 72", "RECORD_RECONSUME_TIMES_AT 73", SENDS),
    Mutant(KERNEL, "PyTuple_GetItem(target, 1) != run->broker_config", "0", FAST),
    Mutant(KERNEL, "PyTuple_GetItem(target, 0) != config", "0", FAST),
    Mutant(KERNEL, "length + run->own.size > MAX_PROPERTIES_BYTES", "length > MAX_PROPERTIES_BYTES", BOUNDS),
    Mutant(KERNEL, "== 0 || body.size > run->max_body", "== 0 || body.size > run->max_body + 1", BOUNDS),
    Mutant(KERNEL, "max_body || size > run->max_record", "max_body || size > run->max_record + 1", BOUNDS),
    Mutant(KERNEL, "        || run->phy_offset + size > run->last_phy_offset)", ")", BOUNDS),
    Mutant(
        KERNEL,
        "total > MAX_RECORD_BYTES || run->phy_offset + size > run->last_phy_offset)",
        "total > MAX_RECORD_BYTES)",
        STAGED,
    ),
    Mutant(
        KERNEL,
        "run->phy_offset + total > run->last_phy_offset",
        "run->phy_offset > run->last_phy_offset",
        BOUNDS,
    ),
    Mutant(LARGE_READS, " or start + self._frame_bytes > len(view)", "", LARGE_READ),
    Mutant(LARGE_READS, "            self._budget.large_reads -= 1\n", "", LARGE_READ),
    Mutant(LARGE_READS, "rest < self._frame_bytes <= ", "self._frame_bytes <= ", LARGE_READ),
    Mutant(KERNEL, "run->large.all.size = large;", "(void)large;", LARGE),
    Mutant(KERNEL, "position = body.position;", "position = 0;", LARGE),
    Mutant(KERNEL, "run->large.begin = rest.at - end->position;", "run->large.begin = rest.at;", LARGE),
    Mutant(KERNEL, "body.size >= MIN_LARGE_BODY_BYTES", "body.size > MIN_LARGE_BODY_BYTES", LARGE),
    Mutant(KERNEL, "entry.body.size > *body_left", "entry.body.size > *body_left + 1", BOUNDS),
    Mutant(KERNEL, "run->max_record < size", "run->max_record + 1 < size", REPLICA),
    Mutant(KERNEL, "queue->next != queue_offset", "0", REPLICA),
    Mutant(KERNEL, "memchr(topic.at, '/', (size_t)topic.size) == NULL", "1", REPLICA),
    Mutant(KERNEL, "end - at > 18 ||", "end - at > 19 ||", BOUNDS),
    Mutant(KERNEL, "run->queue_count < MAX_QUEUES", "run->queue_count < MAX_QUEUES - 1", BOUNDS),
    Mutant(KERNEL, "if (send->seen & FIELD(letter))", "if (0)", SENDS),
    Mutant(KERNEL, 'is_text(name, "TRAN_MSG") ||', "", BATCHES),
    Mutant(KERNEL, "run->messages = messages;", "(void)messages;", BATCHES),
    Mutant(KERNEL, "at > window->end - size ||", "at > window->end - size + 1 ||", GATHER),
    Mutant(
        KERNEL,
        "if (count && *total + size > room.bytes)",
        "if (count && *total + size >= room.bytes)",
        GATHER,
    ),
    Mutant(KERNEL, "end < begin || end > data->len", "end < begin || end > data->len + 1", CHECKSUMS),
    Mutant(KERNEL, "begin < 0 || end < begin", "end < begin", CHECKSUMS),
    Mutant(KERNEL, "pull->queue_id >= target->queue_nums", "pull->queue_id > target->queue_nums", PULLS),
    Mutant(KERNEL, "if (pull->seen & 1u << i)", "if (0)", PULLS),
    Mutant(KERNEL, "        pull->sys_flag, pull->sub_version,", "        0, pull->sub_version,", PULLS),
    Mutant(KERNEL, "now == found ||", "1 ||", KEPT_PULLS),
    Mutant(KERNEL, "bounds.end > run->max_phy_offset", "0", KEPT_PULLS),
    Mutant(KERNEL, "joined_answers(run, sent)", "joined_answers(run, 0)", PULL_OUTPUT),
    Mutant(
        "src/kourou/transport/connection.py", "self._fd < 0 or self._out or", "self._fd < 0 or", PULL_OUTPUT
    ),
    Mutant(
        "src/kourou/transport/connection.py",
        "if transport.get_write_buffer_size() or (",
        "if (",
        PULL_OUTPUT,
    ),
    Mutant(KERNEL, "run->is_shared ? -1 : fd", "fd", COLD),
    Mutant(KERNEL, "if (job->doubt.unverified != NULL)", "if (0)", DOUBT),
    Mutant(KERNEL, "is_doubted |= left[chunk]", "is_doubted |= 0 & left[chunk]", DOUBT),
    Mutant(KERNEL, "at <= first_left && first_left < next", "first_left < next", DOUBT),
    Mutant(KERNEL, "run->target.code_count < 0 && can_fold", "can_fold", DOUBT),
    Mutant(KERNEL, "|| low < run->cold.old_end", "|| 1", COLD),
    Mutant(
        KERNEL, "queue->unverified == NULL ? MAX_RECORD_BYTES : MAX_LONE_BYTES", "MAX_RECORD_BYTES", DOUBT
    ),
    Mutant(
        CONSUME_QUEUE, "        self.doubted = {}\n        self.unverified", "        self.unverified", DOUBT
    ),
    Mutant(HAND_OVER, "self._loop.call_soon(self._take_idle_turn)", "self._take_turn()", HAND_OVERS),
    Mutant(
        HAND_OVER,
        "            self._run_first()\n            self.spend()",
        "            self._run_first()",
        HAND_OVERS,
    ),
    Mutant(HAND_OVER, "max(-MAX_DEBT_S, self._credit_s - spent_s)", "self._credit_s - spent_s", HAND_OVERS),
    Mutant(CONSUME_QUEUE, "            self.doubted = {}\n        return True", "        return True", DOUBT),
    Mutant(
        "src/kourou/transport/connection.py",
        "if not self._out and self._transport",
        "if self._transport",
        COLD,
    ),
    Mutant(
        "src/kourou/broker/pull/cold_answers.py",
        "(connection, _without_commit(frame))",
        "(connection, frame)",
        COLD,
    ),
    Mutant(
        FAST_PULLS, "places.hands_over or (places.lacks_time and state.reads_old)", "state.reads_old", COLD
    ),
    Mutant(KERNEL, "count < room.messages && count <", "count <", PULLS),
    Mutant(KERNEL, "(count == 0 || count < room->messages)", "1", PULLS),
    Mutant(KERNEL, "if (count && total + size > room->bytes)", "if (0)", PULLS),
    Mutant(KERNEL, "pull->queue_offset + looked_at)", "-1)", PULLS),
    Mutant(FAST_PULLS, "            or offsets.resets\n", "", PULLS),
    Mutant(FAST_PULLS, "            self._admission.sees_pulls\n", "            False\n", PULLS),
    Mutant(FAST_PULLS, "            or self._hooks.after_pull\n", "", PULLS),
    Mutant(FAST_PULLS, "not (connection.closed or connection.is_write_paused)", "True", PULLS),
    Mutant(KERNEL, "at - start <= data.len - size", "at - start <= data.len", FITS),
    Mutant(KERNEL, "fits = at >= start &&", "fits =", FITS),
    Mutant(KERNEL, "at > log->end - size)", "at > log->end)", FITS),
    Mutant(KERNEL, "(off_t)(phy_offset - log->start)", "(off_t)phy_offset", FITS),
    Mutant(KERNEL, "transaction == TRANSACTION_ROLLBACK ||", "0 ||", FITS),
    Mutant(KERNEL, "transaction == TRANSACTION_PREPARED ||", "0 ||", FITS),
    Mutant(COLD_SHARE, "self._credit_s - spent_s", "self._credit_s", SHARES),
    Mutant(
        "src/kourou/broker/pull/pull_places.py",
        "self.has_time or self._turns.is_free",
        "True",
        (f"{_KERNEL_TESTS}/test_answer_pulls.py", "-k", "closes_while"),
    ),
    Mutant(COLD_SHARE, "self._credit_s > 0 or not self.is_sending()", "True", SHARES),
    Mutant(KERNEL, "/ slots->block < slots->dirty.len", "/ slots->block <= slots->dirty.len", SLOTS),
    Mutant(KERNEL, "        if (slot < 0)\n            slot += slots->count;\n", "", SLOTS),
    Mutant(KERNEL, "first_index <= INT32_MAX - hashes->len / 4", "first_index <= INT32_MAX", SLOTS),
    # -- signed sends ----------------------------------------------------------------------------
    Mutant(KERNEL, "return differs == 0;", "return 1;", SIGNED),
    Mutant(KERNEL, "PyTuple_GetItem(account, 0) != run->broker_config", "0", SIGNED),
    Mutant(KERNEL, "if (may_send <= 0 || state.size", "if (may_send < 0 || state.size", SIGNED),
    Mutant(KERNEL, "        && compare_names(ahead->topic, topic) == 0)", "        )", SIGNED),
    Mutant(KERNEL, "if (block + 1 == blocks[lane]) {", "if (block + 1 == blocks[longest]) {", HASHES),
    # -- the commit cycle ------------------------------------------------------------------------
    Mutant(CYCLE, "        failed.batch.answer(failed.status)\n", "", CYCLES),
    Mutant(CYCLE, "            sends.answer(answers, messages, cycle_ms, failed.status)\n", "", LONE_RUNS),
    Mutant(CYCLE, "                or self.waiting_messages\n", "", LONE_RUNS),
    Mutant(CYCLE, "                before_write\n                or ", "                ", LONE_RUNS),
    Mutant(CYCLE, "if self.waits_for_flush or self._flushing:", "if self.waits_for_flush:", CYCLES),
    Mutant(
        CYCLE,
        "if self.replicas is None and not self._replicating:",
        "if self.replicas is None:",
        CYCLES,
    ),
    Mutant(CYCLE, "        batch.answer_unwaited(PutStatus.PUT_OK)\n", "", CYCLES),
    Mutant(CYCLE, "            self._flusher.request_nowait()\n", "", CYCLES),
    Mutant(CYCLE, "        self.waiting_bytes -= batch.size_bytes\n", "", CYCLES),
    Mutant(
        CYCLE,
        "        if self._store.is_fenced:\n            self.give_up()\n",
        "",
        CYCLES,
    ),
    Mutant(CYCLE, "        self._store.publish(batch)\n", "", CYCLES),
    # -- putting ---------------------------------------------------------------------------------
    Mutant(
        APPENDER,
        "if size > self._largest or len(body) > self._max_message_bytes:",
        "if size > self._largest or len(body) > self._max_message_bytes + 1:",
        PUTS,
    ),
    Mutant(
        APPENDER,
        "if phy_offset + size > batch.last_phy_offset:",
        "if phy_offset + size >= batch.last_phy_offset:",
        PUTS,
    ),
    Mutant(
        APPENDER,
        "if batch.end_phy_offset + size > batch.last_phy_offset:",
        "if batch.end_phy_offset + size > batch.last_phy_offset + 1:",
        PUTS,
    ),
    Mutant(APPENDER, "            keys = ()\n", "            pass\n", PUTS),
    Mutant(APPENDER, "        self._log.max_phy_offset = batch.end_phy_offset\n", "", PUTS),
    Mutant(APPENDER, "            if self._half_written_end:\n", "            if False:\n", PUTS),
    Mutant(APPENDER, "            or self._half_written_end\n", "", LONE_RUNS),
    Mutant(APPENDER, "            or self.may_write is not None\n", "", LONE_RUNS),
    Mutant(APPENDER, "                self.fence(reason)\n", "                pass\n", PUTS),
    # -- reading ---------------------------------------------------------------------------------
    Mutant(
        READER,
        "if low < self._log.min_phy_offset or high > self._log.max_phy_offset:\n            return False",
        "if low < self._log.min_phy_offset:\n            return False",
        READS,
    ),
    Mutant(
        READER,
        "if low < self._log.min_phy_offset or high > self._log.max_phy_offset:\n            return False",
        "if high > self._log.max_phy_offset:\n            return False",
        READS,
    ),
    Mutant(READER, "high > log.max_phy_offset or min(sizes) <= 0", "high > log.max_phy_offset", READS),
    Mutant(READER, "if count and total + size > most_bytes:", "if total + size > most_bytes:", READS),
    Mutant(READER, "low <= phy_offset <= high - size", "low <= phy_offset <= high", READS),
    Mutant(
        READER,
        "verified, and rebuilt.\n                    next_offset -= 1\n",
        "verified, and rebuilt.\n",
        READS,
    ),
    # -- recovery --------------------------------------------------------------------------------
    Mutant(
        READ_AHEAD,
        " if found is not None and found.phy_offset == phy_offset",
        " if found is not None",
        RECOVERED,
    ),
    Mutant(READ_AHEAD, "first, end = start, found", "first = start + 1", RECOVERED),
    # -- the fast path ---------------------------------------------------------------------------
    Mutant(FAST_PATH, " and admission.is_fast_path_open", "", FAST),
    Mutant(FAST_PATH, "runs < _MAX_RUNS", "True", SENDS),
    Mutant(FAST_PATH, "max(start, position)", "start", SENDS),
    Mutant(FAST_PATH, "if status is not _PUT_OK:\n", "if False:\n", SENDS),
    Mutant(FAST_PATH, '            self._status.fail("a send")\n', "", SENDS),
)


def main(words: Sequence[str]) -> int:
    """Run the mutants; the exit status."""
    chosen = [
        mutant
        for mutant in MUTANTS
        if not words or any(word in f"{mutant.files} {mutant.old} {mutant.new}" for word in words)
    ]
    with tempfile.TemporaryDirectory(prefix="kourou-mutants-") as name:
        scratch = Path(name)
        copy_tree(scratch)
        for tests in dict.fromkeys(mutant.tests for mutant in chosen):
            problem = failure(scratch, tests)
            if problem is not None:
                print(f"without a mutant {' '.join(tests)} fails:\n{problem}")
                return 1
        results = [run(scratch, mutant) for mutant in chosen]
    killed, survived = results.count("killed"), results.count("SURVIVED")
    untested = len(results) - killed - survived
    print(f"{len(results)} mutants: {killed} killed, {survived} survived, {untested} could not be tested")
    return 0 if results and set(results) == {"killed"} else 1


def copy_tree(scratch: Path) -> None:
    """Copy all files of the project, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for path in filter(None, listed.split("\0")):
        if (ROOT / path).is_file():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, scratch / path)


def run(scratch: Path, mutant: Mutant) -> str:
    """Test one mutant; `killed`, or what is wrong."""
    began = time.monotonic()
    places = mutant.places(scratch)
    name = ", ".join(path.name for path in places) or mutant.files
    if len(places) != 1:
        outcome = f"WRONG: the text is there {len(places)} times"
    else:
        path = places[0]
        source = path.read_text("utf-8")
        path.write_text(source.replace(mutant.old, mutant.new), "utf-8")
        problem = failure(scratch, mutant.tests)
        path.write_text(source, "utf-8")
        if problem is None:
            outcome = "SURVIVED"
        elif any(sign in problem for sign in _NOT_TESTED):
            outcome = f"WRONG: it cannot be tested:\n{problem}\n"
        else:
            outcome = "killed"
    seconds = time.monotonic() - began
    change = f"{_short(mutant.old)} -> {_short(mutant.new)}"
    print(f"{outcome:8} {seconds:5.1f} s  {name}: {change}", flush=True)
    return outcome


def failure(scratch: Path, tests: Sequence[str]) -> str | None:
    """The end of what pytest prints if a test fails; None if all pass."""
    command = [str(PYTHON), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    # Bytecode is found by a file's time and size: a mutant of the same second might not be seen.
    environment = os.environ | {"PYTHONPATH": str(scratch / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("KOUROU_NIGHTLY", None)
    try:
        done = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"{_TIMED_OUT} of {TIMEOUT_S} s"
    return None if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-30:])


def _short(text: str) -> str:
    return " ".join(text.split())[:60] or "nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
