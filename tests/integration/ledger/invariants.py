"""What holds for every task at any time, by the database alone (reliability.md, Promises). Used by machine.py."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.ledger import events, tasks
from app.ledger.pool import Database
from app.ledger.rows import Event, Turn
from app.protocol.events import RESUME_EXTENSION
from app.protocol.fold import fold
from app.protocol.states import TaskState

ORPHANS = """
SELECT t.task_id, t.state, t.fence, q.fence AS queue_fence FROM tasks t
  FULL JOIN queue q ON q.tenant_id = t.tenant_id AND q.task_id = t.task_id
 WHERE (t.state IN (1, 2)) IS DISTINCT FROM (q.task_id IS NOT NULL) OR q.fence <> t.fence"""
TURN_ENDS = {3: "done", 4: "failed", 5: "canceled", 6: "paused", 7: "failed", 8: "paused"}


async def check_all(db: Database, tenants: Sequence[str], releases: Mapping[tuple[UUID, int], int]) -> None:
    """All tasks of ``tenants``. ``releases``: how many leases of a (task, turn) were released, which no log tells."""
    async with db.tenant(*tenants) as connection:
        assert await connection.fetch(ORPHANS) == [], "live tasks, and no others, stand in the queue under their fence"
        made = await connection.fetch("SELECT tenant_id, task_id FROM tasks")
    for row in made:
        await check_task(db, row["tenant_id"], row["task_id"], releases)


async def check_task(db: Database, tenant: str, task_id: UUID, releases: Mapping[tuple[UUID, int], int]) -> None:
    page = await events.read(db, tenant, task_id, 0, 100_000)
    loaded = await tasks.load(db, tenant, task_id)
    assert page
    assert loaded
    log, head = page.events, loaded.head
    assert [event.seq for event in log] == list(range(1, head.last_seq + 1)), "seqs are dense"
    bodies = [json.loads(event.body) for event in log]
    assert fold((event.kind, body) for event, body in zip(log, bodies, strict=True)) == loaded.task
    states = [_state(body) for body in bodies]
    ends = [event.seq for event, state in zip(log, states, strict=True) if state and state.is_terminal]
    assert ends == ([head.terminal_seq] if head.state.is_terminal else []), "one terminal event"
    assert not ends or ends == [head.last_seq], "nothing follows it"
    assert loaded.task["status"]["state"] == head.state.wire
    check_executions(task_id, log, bodies, releases)
    check_turns(log, states, await tasks.turns(db, tenant, task_id))


def check_executions(
    task_id: UUID, log: list[Event], bodies: list[dict[str, Any]], releases: Mapping[tuple[UUID, int], int]
) -> None:
    """Executions of a turn ≤ 1 + expiries + retries + releases."""
    claims, returns = Counter[int](), Counter[int]()
    for event, body in zip(log, bodies, strict=True):
        facts = body.get("statusUpdate", {}).get("metadata", {}).get(RESUME_EXTENSION, {})
        claims[event.turn] += event.actor_kind == "worker" and set(facts) == {"turn", "attempt"}
        returns[event.turn] += facts.get("reason") in ("RETRY", "LEASE_EXPIRED")
    for turn, count in claims.items():
        assert count <= 1 + returns[turn] + releases.get((task_id, turn), 0), f"turn {turn} was executed {count} times"


def check_turns(log: list[Event], states: list[TaskState | None], turns: list[Turn]) -> None:
    """A turn's state is what the log says of it; only a release is silent, so a started turn may be queued again."""
    said: dict[int, str] = {}
    for event, state in zip(log, states, strict=True):
        if event.kind in ("task.submitted", "message.user"):
            said[event.turn] = "queued"
        elif event.kind == "turn.started":
            said[event.turn] = "running"
        elif event.kind == "turn.ended":
            said[event.turn] = "done"
        elif state in TURN_ENDS and said[event.turn] in ("queued", "running"):
            said[event.turn] = TURN_ENDS[state]
        if state and state.is_terminal:
            said = {turn: "canceled" if was == "queued" else was for turn, was in said.items()}
    assert [turn.turn for turn in turns] == sorted(said)
    for turn in turns:
        assert turn.state == said[turn.turn] or (turn.state, said[turn.turn]) == ("queued", "running")


def _state(body: dict[str, Any]) -> TaskState | None:
    shown = body.get("statusUpdate") or body.get("task")
    return TaskState.parse(shown["status"]["state"]) if shown else None
