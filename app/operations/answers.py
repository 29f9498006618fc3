"""What operations answer, and how a Task is shown on the A2A doors."""

from dataclasses import dataclass
from uuid import UUID

from app.errors import TaskNotFound
from app.ledger import places, tasks
from app.ledger.rows import JsonObject, LoadedTask, TaskHead
from app.operations.deps import Operations
from app.protocol.events import RESUME_EXTENSION
from app.protocol.fold import view
from app.protocol.models import format_timestamp
from app.protocol.states import TaskState


@dataclass(frozen=True, slots=True)
class Answer:
    """A unary answer's JSON. ``replayed``: a duplicate, answered with its first sending. ``total_capped``: totalSize is
    a lower bound."""

    body: JsonObject
    replayed: bool = False
    total_capped: bool = False


def parse_task_id(text: str) -> UUID | None:
    """Only ids in the canonical form exist; everything else is as unknown as a foreign one."""
    try:
        task_id = UUID(text)
    except ValueError:
        return None
    return task_id if str(task_id) == text else None


def facts_of(state: TaskState, last_seq: int) -> dict[str, str]:
    """The metadata of an error that is about a task: every answer about one carries its last seq (native-api.md)."""
    return {"state": state.wire, "lastSeq": str(last_seq)}


async def load_of_agent(ops: Operations, tenant: str, agent_id: str, text: str) -> LoadedTask:
    """The tenant's task behind this agent's door. Raises TaskNotFound for unknown, foreign and malformed ids alike."""
    task_id = parse_task_id(text)
    loaded = None if task_id is None else await tasks.load(ops.db, tenant, task_id)
    if loaded is None or loaded.head.agent_id != agent_id:
        raise TaskNotFound
    return loaded


async def head_of_agent(ops: Operations, tenant: str, agent_id: str, text: str) -> TaskHead:
    """The same, of the task's row alone."""
    task_id = parse_task_id(text)
    head = None if task_id is None else await tasks.head(ops.db, tenant, task_id)
    if head is None or head.agent_id != agent_id:
        raise TaskNotFound
    return head


async def shown(
    ops: Operations,
    loaded: LoadedTask,
    *,
    history_length: int | None = None,
) -> JsonObject:
    """The A2A Task with what the broker adds: its last seq and, while it waits, its place in the queue."""
    task = view(loaded.task, history_length=history_length)
    added: JsonObject = {"lastSeq": loaded.head.last_seq}
    if (place := await queue_place(ops, loaded.head)) is not None:
        added["queue"] = place
    return with_broker_metadata(task, added)


async def queue_place(ops: Operations, head: TaskHead) -> JsonObject | None:
    """``{position, runAt, priority}`` of a task that waits for a worker; None for every other one."""
    if head.run_at is None or head.worker_id is not None:
        return None
    position = await places.position(ops.db, head.tenant, head.task_id)
    if position is None:
        return None
    return {"position": position, "runAt": format_timestamp(head.run_at), "priority": head.priority}


def with_broker_metadata(task: JsonObject, added: JsonObject) -> JsonObject:
    """A copy of the Task with ``added`` in ``metadata[RESUME_EXTENSION]``, the only place where the broker adds to A2A
    objects (native-api.md)."""
    metadata: JsonObject = task.get("metadata", {})
    ours: JsonObject = metadata.get(RESUME_EXTENSION, {})
    return {**task, "metadata": {**metadata, RESUME_EXTENSION: {**ours, **added}}}
