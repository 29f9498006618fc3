"""A held lease: heartbeat, events, retry, release. Called by ``transports.native.workers``.

Every call judges again whether the caller may act for the lease's agent (security.md, Tokens). The ledger's outcomes
become answers or errors here, and what was committed is told to whoever waits for it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, assert_never

from app import metrics, offload
from app.auth.caller import Caller
from app.auth.handles import Handles
from app.errors import LeaseLost, NotFound, TaskTerminal
from app.execution.lease_view import HeldLease, open_lease
from app.execution.worker_events import parse_events
from app.ledger import leases, transitions
from app.ledger.directory import AgentDirectory
from app.ledger.inputs import ClaimLimits
from app.ledger.pool import Database
from app.ledger.rows import Agent, AlreadyTerminal, Applied, HeartbeatResult, LeaseEnded, StaleLease, TaskMissing
from app.ledger.wakeups import Wakeups, lease_key, queue_key, task_key
from app.protocol.models import format_timestamp
from app.protocol.states import TaskState

JsonObject = dict[str, Any]

_UNKNOWN = HeartbeatResult(ok=False, expires_at=None, signal=None, state=None)


class Sessions:
    """The lease calls of this process. ``poll_seconds`` is how often a waiting heartbeat looks without a wake-up."""

    def __init__(
        self, db: Database, wakeups: Wakeups, directory: AgentDirectory, handles: Handles, *, poll_seconds: float
    ) -> None:
        self._db = db
        self._wakeups = wakeups
        self._directory = directory
        self._handles = handles
        self._poll_seconds = poll_seconds
        self._drain = asyncio.Event()

    def drain(self) -> None:
        """Answer waiting heartbeats at once; leases go on."""
        self._drain.set()
        self._wakeups.bump_all()

    async def agent(self, caller: Caller, agent_id: str) -> Agent:
        """The agent, a tombstone included, if the caller may work for it. Raises NotFound otherwise."""
        if agent_id not in caller.agents:
            raise NotFound
        agent = await self._directory.get(agent_id)
        if agent is None or agent.tenant != caller.tenant:
            raise NotFound
        return agent

    async def open(self, caller: Caller, lease_id: str) -> HeldLease:
        """What the leaseId stands for, if the caller may work for its agent. Raises NotFound otherwise."""
        held = open_lease(self._handles, lease_id)
        agent = await self.agent(caller, held.agent_id)
        held.limited = ClaimLimits.of(agent.config) != leases.NO_LIMITS
        return held

    async def append(self, held: HeldLease, events: object, *, size: int = 0) -> JsonObject:
        """Write a batch of events, all or nothing; ``size`` is that of the request's body.

        Raises LeaseLost or TaskTerminal when the lease has ended, and the errors of ``parse_events`` and
        ``transitions.append``.
        """
        task, context, attempt = held.key.task_id, held.context_id, held.attempt
        batch = await offload.run(size, lambda: parse_events(events, task_id=task, context_id=context, attempt=attempt))
        outcome = await transitions.append(self._db, lease=held.key, worker_id=held.worker_id, events=batch)
        match outcome:
            case Applied():
                if len(outcome.duplicates) < len(outcome.seqs):
                    self._tell(held, outcome.state, lease_ended=outcome.lease_ended)
                return {
                    "seqs": outcome.seqs,
                    "state": outcome.state.wire,
                    "lastSeq": outcome.last_seq,
                    "turnEnded": outcome.turn_ended,
                    "leaseEnded": outcome.lease_ended,
                    "duplicates": outcome.duplicates,
                    "signal": outcome.signal,
                }
            case AlreadyTerminal() | StaleLease() | TaskMissing():
                raise _lost(outcome)
            case _:
                assert_never(outcome)

    async def retry(self, held: HeldLease, *, error: str, delay_seconds: float | None) -> JsonObject:
        """Give a failed attempt back: queued again, or FAILED when the attempts are used up."""
        outcome = await transitions.retry(self._db, lease=held.key, error=error, delay_seconds=delay_seconds)
        return self._ended(held, outcome)

    async def release(self, held: HeldLease, *, delay_seconds: float | None) -> JsonObject:
        """Give a lease back, the attempt not counted."""
        return self._ended(held, await transitions.release(self._db, lease=held.key, delay_seconds=delay_seconds))

    async def heartbeat(
        self, caller: Caller, lease_ids: Sequence[str], *, extend_seconds: float | None, wait_seconds: float
    ) -> list[JsonObject]:
        """Extend leases now, then hold the answer until one has a signal or is lost, or ``wait_seconds`` are over.

        An id that this caller cannot have is a lost lease among others. Raises NotFound when no id is any better.
        """
        held = [await self._find(caller, lease_id) for lease_id in lease_ids]
        known = [lease.key for lease in held if lease is not None]
        if not known:
            raise NotFound

        async def beat(seconds: float | None) -> list[HeartbeatResult]:
            found = iter(await leases.heartbeat(self._db, known, seconds))
            return [_UNKNOWN if lease is None else next(found) for lease in held]

        deadline = time.monotonic() + wait_seconds
        with self._wakeups.watch(*(lease_key(key.tenant, key.task_id) for key in known)) as signal:
            results = await beat(extend_seconds)
            while not _has_news(results) and not self._drain.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                await signal.wait(min(left, self._poll_seconds))
                # only looked at, not extended: a worker that was stopped while it waits must not keep its leases
                results = await beat(0)
        return [_beat(lease_id, result) for lease_id, result in zip(lease_ids, results, strict=True)]

    async def _find(self, caller: Caller, lease_id: str) -> HeldLease | None:
        try:
            return await self.open(caller, lease_id)
        except NotFound:
            return None

    def _ended(self, held: HeldLease, outcome: LeaseEnded | AlreadyTerminal | StaleLease | TaskMissing) -> JsonObject:
        match outcome:
            case LeaseEnded():
                self._tell(held, outcome.state, lease_ended=True)
                return {"state": outcome.state.wire, "lastSeq": outcome.last_seq}
            case AlreadyTerminal() | StaleLease() | TaskMissing():
                raise _lost(outcome)
            case _:
                assert_never(outcome)

    def _tell(self, held: HeldLease, state: TaskState, *, lease_ended: bool) -> None:
        """After a commit: wake readers, and where the lease has ended its heartbeat and the agent's pollers."""
        key = held.key
        self._wakeups.bump(task_key(key.tenant, key.task_id))
        if lease_ended:
            self._wakeups.bump(lease_key(key.tenant, key.task_id))
            if state is TaskState.WORKING or held.limited:
                self._wakeups.bump(queue_key(held.agent_id))
            if state is not TaskState.WORKING:
                metrics.count_transition(state, key.task_id)


def _lost(outcome: AlreadyTerminal | StaleLease | TaskMissing) -> LeaseLost | TaskTerminal | NotFound:
    match outcome:
        case AlreadyTerminal():
            metrics.RACES_LOST.inc()
            seq = str(outcome.terminal_seq)
            return TaskTerminal(metadata={"state": outcome.state.wire, "terminalSeq": seq, "lastSeq": seq})
        case StaleLease():
            metrics.FENCE_REJECTIONS.inc()
            return LeaseLost(metadata={"state": outcome.state.wire, "lastSeq": str(outcome.last_seq)})
        case TaskMissing():
            return NotFound()
        case _:
            assert_never(outcome)


def _has_news(results: Sequence[HeartbeatResult]) -> bool:
    return any(not result.ok or result.signal is not None for result in results)


def _beat(lease_id: str, result: HeartbeatResult) -> JsonObject:
    if result.ok and result.expires_at is not None:
        expires_at = format_timestamp(result.expires_at)
        return {"leaseId": lease_id, "ok": True, "expiresAt": expires_at, "signal": result.signal}
    terminal = result.state is not None and result.state.is_terminal
    return {
        "leaseId": lease_id,
        "ok": False,
        "reason": "TASK_TERMINAL" if terminal else "LEASE_LOST",
        "state": None if result.state is None else result.state.wire,
    }
