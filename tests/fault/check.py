"""Judges the recorded history of a fault test against the promises of reliability.md. Called by fault tests.

``violations`` gives one line for everything that must not have been, each beginning with the promise's number:
I1 submits exist, I2 one terminal state, I3 seqs, I4 streams are the log, I5 leases do not overlap, I6 fences, I8
executions are bounded, I9 webhooks hear of everything, I10 cancels end, I11 forgotten leases end, I12 one task per
idempotency key. The checker trusts nobody's answer: everything is held against the logs. It is tested itself by mutated
histories (test_check.py).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.fault.history import OK, REFUSED, UNKNOWN, Frame, History, Notified, Op
from tests.fault.logged import HIDDEN, TERMINAL, Logged, parse

Logs = dict[str, list[Logged]]
UNANSWERED_SECONDS = 5
"""How long after it was sent a call may still take effect whose sender died."""


def violations(history: History) -> list[str]:
    """Everything that broke a promise; empty when all were kept."""
    logs = {task: [parse(frame) for frame in frames] for task, frames in history.logs.items()}
    return [f"{name} {what}" for name, check in CHECKS.items() for what in check(history, logs)]


def submits_exist(history: History, logs: Logs) -> Iterator[str]:
    """I1: what was acknowledged stands in its task's log, at a seq no greater than the one told; a refused one not."""
    keys = {event.message_id: (task, event.seq) for task, log in logs.items() for event in log if event.message_id}
    for op in history.ops:
        if op.kind != "send":
            continue
        task, seq = keys.get(op.key, ("", 0))
        if op.outcome == OK and (task != op.task or seq > (op.seq or 0)):
            yield f"{op.key} was acknowledged as {op.task} at {op.seq}, but stands in {task or 'no log'} at {seq}"
        if op.outcome == REFUSED and task:
            yield f"{op.key} was refused ({op.reason}), but stands in {task}"


def one_terminal_state(history: History, logs: Logs) -> Iterator[str]:
    """I2: each task has ended, once, with its last event; and nobody was ever told otherwise."""
    for task, log in logs.items():
        ends = [event.seq for event in log if event.state in TERMINAL]
        if ends != [log[-1].seq]:
            yield f"{task} ends at {ends} of {log[-1].seq}"
    for op in history.ops:
        log = logs.get(op.task)
        if log and op.state in TERMINAL and (op.state, op.terminal_seq or log[-1].seq) != (log[-1].state, log[-1].seq):
            yield f"{op.task}: {op.actor} was told {op.state} at {op.terminal_seq}, the log says {log[-1].state}"


def seqs_hold(history: History, logs: Logs) -> Iterator[str]:
    """I3: seqs are 1..n; every batch stands whole at the seqs that were told, or not at all; answers never go back."""
    for task, log in logs.items():
        if [event.seq for event in log] != list(range(1, len(log) + 1)):
            yield f"{task} has the seqs {[event.seq for event in log]}"
        marks = [event.mark for event in log if event.mark]
        if len(marks) != len(set(marks)):
            yield f"{task} has an event twice"
    for op in history.ops:
        if op.kind == "write" and op.task in logs:
            at = {event.mark: event.seq for event in logs[op.task] if event.mark in op.marks}
            if op.outcome == OK and [at.get(mark) for mark in op.marks] != list(op.seqs):
                yield f"{op.task}: {op.marks} was told {op.seqs}, stands at {at}"
            if op.outcome == UNKNOWN and len(at) not in (0, len(op.marks)):
                yield f"{op.task}: only {at} of {op.marks} was written"
    yield from _answers_go_forward(history, logs)


def _answers_go_forward(history: History, logs: Logs) -> Iterator[str]:
    """An answer that was complete before a question was asked cannot know more of the task than the later answer."""
    by_task: defaultdict[str, list[Op]] = defaultdict(list)
    for op in history.ops:
        if op.seq is not None:
            by_task[op.task].append(op)
    for task, ops in by_task.items():
        ended = sorted(ops, key=lambda op: op.end)
        known, index = 0, 0
        for op in sorted(ops, key=lambda op: op.start):
            while index < len(ended) and ended[index].end < op.start:
                known = max(known, ended[index].seq or 0)
                index += 1
            if (op.seq or 0) < known:
                yield f"{task}: {op.actor}'s {op.kind} was told seq {op.seq} after {known} had been told"
        known = max(op.seq or 0 for op in ops)
        if known > len(logs.get(task, ())):
            yield f"{task}: seq {known} was told, the log has {len(logs.get(task, ()))}"


def streams_are_the_log(history: History, logs: Logs) -> Iterator[str]:
    """I4: each connection gave exactly what follows its cursor, in the log's bytes; one that closed gave all of it."""
    seen: defaultdict[tuple[str, str], int] = defaultdict(int)
    for read in history.reads:
        who = f"{read.task}: {read.reader} after {read.cursor}"
        log: list[Frame] = history.logs.get(read.task, [])
        if read.cursor != seen[read.reader, read.task]:
            yield f"{who}: came with another cursor than {seen[read.reader, read.task]}"
        given = [frame.seq for frame in read.frames]
        if given != list(range(read.cursor + 1, read.cursor + 1 + len(given))):
            yield f"{who}: got {given}"
        elif list(read.frames) != log[read.cursor : read.cursor + len(given)]:
            yield f"{who}: got other bytes than the log's"
        seen[read.reader, read.task] = read.cursor + len(given)
        if read.closed and read.cursor + len(given) != len(log):
            yield f"{who}: closed at {read.cursor + len(given)} of {len(log)}"


def leases_do_not_overlap(history: History, _logs: Logs) -> Iterator[str]:
    """I5: a fence has one holder, and a lease is kept by nobody once a later one was granted."""
    claims = _claims(history)
    for task, granted in claims.items():
        holders = {(claim.fence, claim.actor) for claim in granted}
        if len(holders) != len({fence for fence, _ in holders}):
            yield f"{task}: one fence, several holders: {sorted(holders)}"
    for op in history.ops:
        if op.kind == "heartbeat" and op.outcome == OK:
            later = [claim.fence for claim in claims[op.task] if claim.fence > op.fence and claim.end < op.start]
            if later:
                yield f"{op.task}: {op.actor} kept fence {op.fence} after {later} had been granted"


def fences_hold(history: History, logs: Logs) -> Iterator[str]:
    """I6: what a lease wrote stands between its own claim and the next one; what was refused stands nowhere."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for task, claims in _claims(history).items():
        claimed_at = {claim.fence: claim.seq or 0 for claim in claims}
        fences = sorted(claimed_at)
        for fence, following in zip(fences, [*fences[1:], None], strict=True):
            spans[task, fence] = claimed_at[fence], 2**63 if following is None else claimed_at[following]
    for op in history.ops:
        if op.kind != "write" or op.task not in logs:
            continue
        at = [event.seq for event in logs[op.task] if event.mark in op.marks]
        after, before = spans.get((op.task, op.fence), (0, 2**63))
        if op.outcome == REFUSED and at:
            yield f"{op.task}: {op.marks} was refused ({op.reason}), but stands at {at}"
        if any(not after < seq < before for seq in at):
            yield f"{op.task}: {op.marks} of fence {op.fence} stands at {at}, not between {after} and {before}"


def executions_are_bounded(history: History, logs: Logs) -> Iterator[str]:
    """I8: a turn is executed once, and once more for each expiry, retry and release of it."""
    executions: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    allowed: defaultdict[tuple[str, int], int] = defaultdict(lambda: 1)
    for task, log in logs.items():
        for event in log:
            allowed[task, event.turn] += event.reason in ("LEASE_EXPIRED", "RETRY")
    turns = {(claim.task, claim.fence): claim.turn for claims in _claims(history).values() for claim in claims}
    for (task, fence), turn in turns.items():
        executions[task, turn].add(fence)
    for op in history.ops:
        if op.kind == "release" and op.outcome != REFUSED:
            allowed[op.task, turns.get((op.task, op.fence), 0)] += 1
    for (task, turn), fences in executions.items():
        if len(fences) > allowed[task, turn]:
            yield f"{task}: turn {turn} was executed under {sorted(fences)}, {allowed[task, turn]} times are allowed"


def webhooks_hear_of_everything(history: History, logs: Logs) -> Iterator[str]:
    """I9: a webhook took every event after its making at least once, first heard of them in their order, and of
    nothing else."""
    heard: defaultdict[tuple[str, str], list[Notified]] = defaultdict(list)
    for one in history.notified:
        heard[one.task, one.config].append(one)
    for hook in history.hooks:
        who, got = f"{hook.task}: webhook {hook.config}", heard.pop((hook.task, hook.config), [])
        wanted = {
            event.seq: json.loads(frame.data)
            for event, frame in zip(logs.get(hook.task, ()), history.logs.get(hook.task, ()), strict=True)
            if event.seq > hook.after and event.kind not in HIDDEN
        }
        if list(dict.fromkeys(one.seq for one in got)) != sorted(wanted):
            yield f"{who} first heard of {list(dict.fromkeys(one.seq for one in got))}, not of {sorted(wanted)}"
        if missing := wanted.keys() - {one.seq for one in got if one.ok}:
            yield f"{who} never took {sorted(missing)}"
        for one in got:
            if not json.loads(one.body).items() <= wanted.get(one.seq, {}).items():
                yield f"{who} was told something else of seq {one.seq}"
    yield from (f"{task}: {config} is nobody's webhook" for task, config in heard)


def cancels_end(history: History, logs: Logs) -> Iterator[str]:
    """I10: a cancel that was asked for ends its task in bounded time."""
    for task, log in logs.items():
        asked = [event.at for event in log if event.kind == "cancel.requested"]
        if asked and log[-1].at - asked[0] > history.cancel_seconds:
            yield f"{task} went on for {log[-1].at - asked[0]:.1f} s after its cancel"


def forgotten_leases_end(history: History, logs: Logs) -> Iterator[str]:
    """I11: a lease that nobody keeps any more ends within twice its length."""
    claims = _claims(history)
    beats: defaultdict[tuple[str, int], float] = defaultdict(float)
    for op in history.ops:
        if op.kind == "heartbeat":
            beats[op.task, op.fence] = max(beats[op.task, op.fence], min(op.end, op.start + UNANSWERED_SECONDS))
    for task, log in logs.items():
        claimed: Logged | None = None
        for event in log:
            if event.is_claim:
                claimed = event
            if event.reason == "LEASE_EXPIRED" and claimed:
                fences = [claim.fence for claim in claims[task] if claimed.seq <= (claim.seq or 0) < event.seq]
                forgotten = event.at - max(claimed.at, *(beats[task, fence] for fence in fences), 0)
                if forgotten > 2 * history.lease_seconds + history.expiry_slack:
                    yield f"{task}: the lease of seq {claimed.seq} was forgotten for {forgotten:.1f} s"


def one_task_per_key(history: History, logs: Logs) -> Iterator[str]:
    """I12: a message stands in one place of one log, and all who were answered for it were told that task."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    told: defaultdict[str, set[str]] = defaultdict(set)
    for task, log in logs.items():
        for event in log:
            if event.message_id:
                places[event.message_id].append(f"{task}:{event.seq}")
    for op in history.ops:
        if op.kind == "send" and op.outcome == OK:
            told[op.key].add(op.task)
    yield from (f"{key} stands at {found}" for key, found in places.items() if len(found) > 1)
    yield from (f"{key} was told to be {tasks}" for key, tasks in told.items() if len(tasks) > 1)


def _claims(history: History) -> defaultdict[str, list[Op]]:
    """The leases that workers were given, task by task."""
    claims: defaultdict[str, list[Op]] = defaultdict(list)
    for op in history.ops:
        if op.kind == "claim" and op.outcome == OK and op.task:
            claims[op.task].append(op)
    return claims


CHECKS: dict[str, Callable[[History, Logs], Iterator[str]]] = {
    "I1": submits_exist,
    "I2": one_terminal_state,
    "I3": seqs_hold,
    "I4": streams_are_the_log,
    "I5": leases_do_not_overlap,
    "I6": fences_hold,
    "I8": executions_are_bounded,
    "I9": webhooks_hear_of_everything,
    "I10": cancels_end,
    "I11": forgotten_leases_end,
    "I12": one_task_per_key,
}
