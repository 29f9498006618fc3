"""One wrong thing each, put into a history that is right. The names begin with the promise that is broken.

Called by test_check.py. Each changes the history it is given and raises LookupError when there is nothing to change.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fault.history import OK, REFUSED, UNKNOWN, Frame, History, Op, Read
from tests.fault.logged import Logged, parse

Json = dict[str, Any]
MUTANTS: dict[str, Callable[[History], None]] = {}


def mutant(change: Callable[[History], None]) -> Callable[[History], None]:
    MUTANTS[change.__name__] = change
    return change


def first(history: History, condition: Callable[[Op], object]) -> tuple[int, Op]:
    """The first operation for which the condition holds, and its place."""
    for index, op in enumerate(history.ops):
        if condition(op):
            return index, op
    raise LookupError


def logged(history: History, condition: Callable[[Logged], object]) -> tuple[list[Frame], int]:
    """The first event for which the condition holds: its log and its place there."""
    for log in history.logs.values():
        for index, frame in enumerate(log):
            if condition(parse(frame)):
                return log, index
    raise LookupError


def edit(log: list[Frame], index: int, change: Callable[[Json], object]) -> None:
    """Change one event's JSON."""
    event = json.loads(log[index].data)
    change(event)
    log[index] = replace(log[index], data=json.dumps(event))


def remark(log: list[Frame], index: int, mark: str) -> None:
    """Put another mark into an artifact event."""
    edit(log, index, lambda event: event["artifactUpdate"]["artifact"]["parts"][0]["metadata"].update(mark=mark))


def long_read(history: History) -> tuple[int, Read]:
    for index, read in enumerate(history.reads):
        if len(read.frames) > 2:
            return index, read
    raise LookupError


def leased_twice(history: History) -> tuple[Op, Op]:
    """Two leases of one task, one after the other."""
    for task in history.logs:
        claims = [op for op in history.ops if told(op, "claim") and op.task == task]
        if len(claims) > 1:
            earlier, later, *_ = sorted(claims, key=lambda op: op.fence)
            return earlier, later
    raise LookupError


def notified(history: History) -> tuple[int, int]:
    """The places of the only notifications of two events, the one after the other, at one webhook."""
    places: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for place, one in enumerate(history.notified):
        places[one.task, one.config, one.seq].append(place)
    once = sorted((key, found[0]) for key, found in places.items() if len(found) == 1)
    for (before, first), (after, second) in itertools.pairwise(once):
        if before[:2] == after[:2]:
            return first, second
    raise LookupError


def told(op: Op, kind: str) -> bool:
    return op.kind == kind and op.outcome == OK


@mutant
def i1_an_acknowledged_message_is_lost(history: History) -> None:
    del history.logs[first(history, lambda op: told(op, "send"))[1].task]


@mutant
def i1_a_refused_message_is_kept(history: History) -> None:
    _, op = first(history, lambda op: told(op, "send"))
    history.ops.append(replace(op, outcome=REFUSED, reason="UNSUPPORTED_OPERATION", state="", seq=None))


@mutant
def i1_a_message_stands_later_than_it_was_told(history: History) -> None:
    index, op = first(history, lambda op: told(op, "send"))
    history.ops[index] = replace(op, seq=0)


@mutant
def i2_a_terminal_event_is_doubled(history: History) -> None:
    log, index = logged(history, lambda event: event.state == "COMPLETED")
    log.append(replace(log[index], seq=log[index].seq + 1))


@mutant
def i2_an_event_follows_the_end(history: History) -> None:
    log, index = logged(history, lambda event: event.is_claim)
    log.append(replace(log[index], seq=log[-1].seq + 1))


@mutant
def i2_a_task_never_ends(history: History) -> None:
    log, _ = logged(history, lambda event: event.state == "COMPLETED")
    log.pop()


@mutant
def i2_a_cancel_is_confirmed_that_lost(history: History) -> None:
    index, op = first(history, lambda op: op.kind == "cancel" and op.state == "COMPLETED" and op.outcome == REFUSED)
    history.ops[index] = replace(op, outcome=OK, state="CANCELED")


@mutant
def i2_another_terminal_seq_is_told(history: History) -> None:
    index, op = first(history, lambda op: op.terminal_seq)
    history.ops[index] = replace(op, terminal_seq=(op.terminal_seq or 0) - 1)


@mutant
def i3_an_event_is_dropped(history: History) -> None:
    log, index = logged(history, lambda event: event.kind == "turn.started")
    del log[index]


@mutant
def i3_a_resent_event_is_written_twice(history: History) -> None:
    log, index = logged(history, lambda event: event.kind == "artifact.replace")
    log.insert(index, log[index])


@mutant
def i3_a_batch_is_half_written(history: History) -> None:
    index, op = first(history, lambda op: told(op, "write") and len(op.marks) == 2)
    history.ops[index] = replace(op, outcome=UNKNOWN, seqs=(), seq=None, state="")
    log = history.logs[op.task]
    remark(log, op.seqs[0] - 1, "nobody's")


@mutant
def i3_an_event_stands_elsewhere_than_it_was_told(history: History) -> None:
    index, op = first(history, lambda op: told(op, "write"))
    history.ops[index] = replace(op, seqs=tuple(seq + 1 for seq in op.seqs))


@mutant
def i3_an_answer_is_older_than_an_earlier_one(history: History) -> None:
    _, op = first(history, lambda op: told(op, "write") and op.state == "COMPLETED")
    history.ops.append(replace(op, kind="get", start=op.end + 1, end=op.end + 2, seq=(op.seq or 0) - 1))


@mutant
def i4_a_stream_skips_an_event(history: History) -> None:
    index, read = long_read(history)
    history.reads[index] = replace(read, frames=(read.frames[0], *read.frames[2:]))


@mutant
def i4_a_stream_repeats_an_event(history: History) -> None:
    index, read = long_read(history)
    history.reads[index] = replace(read, frames=(read.frames[0], *read.frames))


@mutant
def i4_a_stream_gives_other_bytes(history: History) -> None:
    index, read = long_read(history)
    changed = replace(read.frames[1], data=read.frames[1].data.replace(":", ": ", 1))
    history.reads[index] = replace(read, frames=(read.frames[0], changed, *read.frames[2:]))


@mutant
def i4_a_stream_closes_before_the_end(history: History) -> None:
    index, read = long_read(history)
    history.reads[index] = replace(read, frames=read.frames[:1], closed=True)


@mutant
def i5_one_lease_is_given_to_two(history: History) -> None:
    _, op = first(history, lambda op: told(op, "claim") and op.task)
    history.ops.append(replace(op, actor="another"))


@mutant
def i5_a_lost_lease_is_kept(history: History) -> None:
    earlier, later = leased_twice(history)
    history.ops.append(replace(earlier, kind="heartbeat", start=later.end + 1, end=later.end + 2, seq=None))


@mutant
def i6_a_refused_event_is_written(history: History) -> None:
    _, op = first(history, lambda op: op.kind == "write" and op.reason == "LEASE_LOST")
    log = history.logs[op.task]
    remark(log, next(at for at, frame in enumerate(log) if "artifactUpdate" in frame.data), op.marks[0])


@mutant
def i6_an_old_fence_writes_after_the_next_claim(history: History) -> None:
    earlier, later = leased_twice(history)
    index, op = first(history, lambda op: told(op, "write") and (op.task, op.fence) == (later.task, later.fence))
    history.ops[index] = replace(op, actor=earlier.actor, fence=earlier.fence)


@mutant
def i8_a_turn_is_executed_once_too_often(history: History) -> None:
    _, op = first(history, lambda op: told(op, "claim") and op.task)
    history.ops.append(replace(op, fence=op.fence + 1000))


@mutant
def i9_a_notification_is_lost(history: History) -> None:
    del history.notified[notified(history)[1]]


@mutant
def i9_an_event_is_notified_before_an_earlier_one(history: History) -> None:
    first, second = notified(history)
    swapped = history.notified[second], history.notified[first]
    history.notified[first], history.notified[second] = swapped


@mutant
def i9_a_refused_notification_counts_as_taken(history: History) -> None:
    _, at = notified(history)
    history.notified[at] = replace(history.notified[at], ok=False)


@mutant
def i9_a_notification_has_other_content(history: History) -> None:
    first, second = notified(history)
    history.notified[first] = replace(history.notified[first], body=history.notified[second].body)


@mutant
def i9_another_is_notified(history: History) -> None:
    history.notified.append(replace(history.notified[0], config="another"))


@mutant
def i10_a_canceled_task_goes_on(history: History) -> None:
    log, index = logged(history, lambda event: event.kind == "cancel.requested")
    edit(log, index, lambda event: event.update(at="2020-01-01T00:00:00.000Z"))


@mutant
def i11_a_lease_is_forgotten(history: History) -> None:
    log, index = logged(history, lambda event: event.reason == "LEASE_EXPIRED")
    edit(log, index, lambda event: event.update(at="2999-01-01T00:00:00.000Z"))


@mutant
def i12_a_message_is_two_tasks(history: History) -> None:
    _, op = first(history, lambda op: told(op, "send"))
    history.logs["another"] = history.logs[op.task]


@mutant
def i12_a_message_is_told_to_be_another_task(history: History) -> None:
    _, op = first(history, lambda op: told(op, "send"))
    history.ops.append(replace(op, task="another", seq=None, state=""))
