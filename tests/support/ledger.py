"""A short hand for ledger tests: one tenant's view of a database, with the usual steps as one call each."""

import asyncio
import hashlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from app.ledger import events, leases, tasks, transitions
from app.ledger.inputs import Keys, LeaseKey, NewEvent, TaskSettings
from app.ledger.pool import Database
from app.ledger.rows import Claimed, Event, LoadedTask, Sent
from app.protocol.states import TaskState
from app.protocol.strict_json import dumps

_numbers = itertools.count(1)
QUICK = TaskSettings(backoff_seconds=0, max_backoff_seconds=0)


def message(text: str = "hi", message_id: str | None = None) -> tuple[str, str]:
    """A client's message as JSON text, and its id."""
    message_id = message_id or f"m{next(_numbers)}"
    return dumps({"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}), message_id


def status(state: TaskState, event_id: str | None = None, text: str | None = None) -> NewEvent:
    body = None if text is None else dumps({"messageId": f"a{next(_numbers)}", "role": "ROLE_AGENT", "parts": []})
    return NewEvent("status", event_id, _hash(state, text), state=state, message=body)


def reply(text: str = "pong", event_id: str | None = None) -> NewEvent:
    body = dumps({"messageId": f"a{next(_numbers)}", "role": "ROLE_AGENT", "parts": [{"text": text}]})
    return NewEvent("message", event_id, _hash("message", text), message=body)


def chunk(
    text: str, *, artifact: str = "A", append: bool = False, last: bool = False, event_id: str | None = None
) -> NewEvent:
    body: dict[str, Any] = {"artifact": {"artifactId": artifact, "parts": [{"text": text}]}}
    body |= {"append": True} if append else {}
    body |= {"lastChunk": True} if last else {}
    return NewEvent(
        "artifact", event_id, _hash(body), artifact=dumps(body), artifact_id=artifact, append=append, last_chunk=last
    )


def _hash(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def key_of(lease: Claimed) -> LeaseKey:
    return LeaseKey(lease.tenant, lease.task_id, lease.fence)


@dataclass
class Bench:
    """One tenant at one ledger. Every step is the real function; ``log`` reads the whole log back."""

    db: Database
    tenant: str = "a"
    agent: str = "x"
    subject: str = "u1"
    made: list[UUID] = field(default_factory=list)

    async def submit(
        self, text: str = "hi", *, message_id: str | None = None, header: str | None = None,
        settings: TaskSettings = QUICK, context_id: str | None = None,
    ) -> Sent:  # fmt: skip
        body, message_id = message(text, message_id)
        outcome = await transitions.submit(
            self.db, tenant=self.tenant, subject=self.subject, agent_id=self.agent, context_id=context_id, message=body,
            keys=Keys(message_id, header, _hash(body)), settings=settings,
        )  # fmt: skip
        assert isinstance(outcome, Sent)
        self.made.append(outcome.task_id)
        return outcome

    async def send(
        self, task_id: UUID, text: str = "more", *, message_id: str | None = None, context_id: str | None = None,
        on_busy: str | None = None,
    ) -> Any:  # fmt: skip
        body, message_id = message(text, message_id)
        return await transitions.send(
            self.db, tenant=self.tenant, subject=self.subject, agent_id=self.agent, task_id=task_id,
            context_id=context_id, message=body, keys=Keys(message_id, None, _hash(body)), on_busy=on_busy,
        )  # fmt: skip

    async def claim(self, worker: str = "w1", *, limit: int = 1, seconds: float | None = None) -> list[Claimed]:
        return await leases.claim(
            self.db, agent_id=self.agent, worker_id=worker, limit=limit, lease_seconds=seconds, claim_id=None
        )

    async def claim_one(self, worker: str = "w1", *, seconds: float | None = None) -> Claimed:
        (lease,) = await self.claim(worker, seconds=seconds)
        return lease

    async def append(self, lease: Claimed | LeaseKey, *new: NewEvent, worker: str = "w1") -> Any:
        key = lease if isinstance(lease, LeaseKey) else key_of(lease)
        return await transitions.append(self.db, lease=key, worker_id=worker, events=new)

    async def cancel(self, task_id: UUID) -> Any:
        return await transitions.cancel(self.db, tenant=self.tenant, subject=self.subject, task_id=task_id)

    async def reap(self) -> list[str]:
        """One pass of the reaper; the kinds that it ended."""
        due = await leases.due(self.db, 100)
        return [item.kind for item in due if await transitions.end_due(self.db, item) is not None]

    async def log(self, task_id: UUID) -> list[Event]:
        page = await events.read(self.db, self.tenant, task_id, 0, 100_000)
        assert page is not None
        assert [event.seq for event in page.events] == list(range(1, page.last_seq + 1)), "seqs are dense"
        return page.events

    async def kinds(self, task_id: UUID) -> list[str]:
        return [event.kind for event in await self.log(task_id)]

    async def load(self, task_id: UUID) -> LoadedTask:
        loaded = await tasks.load(self.db, self.tenant, task_id)
        assert loaded is not None
        return loaded

    async def state(self, task_id: UUID) -> TaskState:
        return (await self.load(task_id)).head.state


@asynccontextmanager
async def open_bench(dsn: str, *, size: int = 8) -> AsyncIterator[Bench]:
    db = await Database.connect(dsn, size=size)
    try:
        yield Bench(db)
    finally:
        await db.close()


async def until(condition: Callable[[], Any], *, seconds: float = 10) -> Any:
    """The first true value of an async condition, asked again and again. Fails the test after ``seconds``."""
    end = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < end, "the condition never became true"
        await asyncio.sleep(0.005)
    return value
