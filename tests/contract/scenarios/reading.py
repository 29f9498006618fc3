"""GetTask, ListTasks, CancelTask and SubscribeToTask (A2A v1.0 §3.1.3 to §3.1.6)."""

from app.protocol.events import RESUME_EXTENSION
from tests.contract.doors import Json
from tests.contract.scenarios import Scenario, worlds
from tests.contract.scenarios.worlds import World

GET, LIST, CANCEL, SUBSCRIBE = "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"
RESUME = {"A2A_Extensions": RESUME_EXTENSION}


def the_task(world: World) -> Json:
    return {"id": world.task_id}


GETS = (
    Scenario("a submitted task", GET, ("task SUBMITTED; asked go",), worlds.submitted, the_task),
    Scenario("a working task", GET, ("task WORKING; asked go; stock = A:",), worlds.working, the_task),
    Scenario("a completed task", GET, ("task COMPLETED: done; asked go; stock = A:3",), worlds.completed, the_task),
    Scenario("a failed task", GET, ("task FAILED: no stock; asked go",), worlds.failed, the_task),
    Scenario("a rejected task", GET, ("task REJECTED: not mine; asked go",), worlds.rejected, the_task),
    Scenario("a canceled task", GET, ("task CANCELED; asked go",), worlds.canceled, the_task),
    Scenario("a task with a question", GET, ("task INPUT_REQUIRED: which one?; asked go",), worlds.input_required,
             the_task),
    Scenario("a task that needs a sign-in", GET, ("task AUTH_REQUIRED: sign in; asked go",), worlds.auth_required,
             the_task),
    Scenario("a task without its history", GET, ("task COMPLETED: done; stock = A:3",), worlds.completed,
             lambda w: {"id": w.task_id, "historyLength": 0}),
    Scenario("a negative historyLength", GET, "INVALID_PARAMS", worlds.submitted,
             lambda w: {"id": w.task_id, "historyLength": -1}),
)  # fmt: skip

LISTS = (
    Scenario("no tasks", LIST, ("0 of 0",)),
    Scenario("a first page, the latest status first", LIST,
             ("2 of 3", "task CANCELED; asked 1", "task SUBMITTED; asked 3", "more"), worlds.three_tasks,
             lambda _: {"pageSize": 2}),
    Scenario("a last page", LIST, ("1 of 3", "task SUBMITTED; asked 2"), worlds.three_tasks,
             lambda w: {"pageSize": 2, "pageToken": w.token}),
    Scenario("one context's tasks", LIST, ("1 of 1", "task CANCELED; asked 1"), worlds.three_tasks,
             lambda w: {"contextId": w.context_id}),
    Scenario("tasks of a state", LIST, ("2 of 2", "task SUBMITTED", "task SUBMITTED"), worlds.three_tasks,
             lambda _: {"status": "TASK_STATE_SUBMITTED", "historyLength": 0}),
    Scenario("tasks with artifacts", LIST, ("1 of 1", "task COMPLETED: done; asked go; stock = A:3"), worlds.completed,
             lambda _: {"includeArtifacts": True}),
    Scenario("tasks without artifacts", LIST, ("1 of 1", "task COMPLETED: done; asked go"), worlds.completed),
    Scenario("another tenant's tasks", LIST, ("0 of 0",), worlds.of_another_tenant),
    Scenario("another agent's tasks", LIST, ("0 of 0",), worlds.of_another_agent),
    *(Scenario(f"a bad {name} {value!r}", LIST, "INVALID_PARAMS", params=lambda _, n=name, v=value: {n: v})
      for name, value in (("pageSize", 0), ("pageSize", 101), ("pageToken", "garbage"), ("historyLength", -1))),
)  # fmt: skip

CANCELS = (
    Scenario("a submitted task", CANCEL, ("task CANCELED; asked go",), worlds.submitted, the_task),
    Scenario("a task with a question", CANCEL, ("task CANCELED; asked go; said which one?",), worlds.input_required,
             the_task),
    Scenario("a working task, at the end of its grace", CANCEL, ("task CANCELED; asked go; stock = A:",),
             worlds.working, the_task),
    Scenario("a completed task", CANCEL, "TASK_NOT_CANCELABLE", worlds.completed, the_task),
    Scenario("a canceled task", CANCEL, "TASK_NOT_CANCELABLE", worlds.canceled, the_task),
    Scenario("a failed task", CANCEL, "TASK_NOT_CANCELABLE", worlds.failed, the_task),
    Scenario("a rejected task", CANCEL, "TASK_NOT_CANCELABLE", worlds.rejected, the_task),
)  # fmt: skip

SUBSCRIPTIONS = (
    Scenario("a submitted task", SUBSCRIBE,
             ("task SUBMITTED; asked go", "WORKING", "WORKING: counting", "stock = A:", "stock += 3 (last)",
              "COMPLETED: done"),
             worlds.submitted, the_task, worlds.work),
    Scenario("a working task", SUBSCRIBE,
             ("task WORKING; asked go; stock = A:", "stock += 3 (last)", "COMPLETED: done"), worlds.working,
             the_task, worlds.finish),
    Scenario("a task with a question stays open", SUBSCRIBE,
             ("task INPUT_REQUIRED: which one?; asked go", "WORKING", "WORKING", "COMPLETED: done"),
             worlds.input_required, the_task, worlds.answer),
    Scenario("a completed task", SUBSCRIBE, "UNSUPPORTED_OPERATION", worlds.completed, the_task),
    Scenario("a canceled task", SUBSCRIBE, "UNSUPPORTED_OPERATION", worlds.canceled, the_task),
    Scenario("where the card has no streams", SUBSCRIBE, "UNSUPPORTED_OPERATION", worlds.no_streams, the_task),
    Scenario("one stream too many", SUBSCRIBE, "RESOURCE_EXHAUSTED", worlds.all_streams_taken, the_task,
             claims={"subject": "crowd"}),
    Scenario("a malformed cursor", SUBSCRIBE, "INVALID_PARAMS", worlds.submitted, the_task,
             headers=RESUME | {"Last_Event_ID": "garbage"}),
    Scenario("a replay from a cursor", SUBSCRIBE,
             ("task COMPLETED: done; asked go; stock = A:3", "stock += 3 (last)", "COMPLETED: done"),
             worlds.completed, the_task, headers=RESUME | {"Last_Event_ID": "1.4"}),
)  # fmt: skip

NOT_FOUND = tuple(
    row
    for operation in (GET, CANCEL, SUBSCRIBE)
    for row in (
        Scenario("an unknown task", operation, "TASK_NOT_FOUND", params=the_task),
        Scenario("a malformed id", operation, "TASK_NOT_FOUND", params=lambda _: {"id": "nonsense"}),
        Scenario("another tenant's task", operation, "TASK_NOT_FOUND", worlds.of_another_tenant, the_task),
        Scenario("another agent's task", operation, "TASK_NOT_FOUND", worlds.of_another_agent, the_task),
        Scenario("an id that is too long", operation, "INVALID_PARAMS", params=lambda _: {"id": "x" * 257}),
    )
)

SCENARIOS = (*GETS, *LISTS, *CANCELS, *SUBSCRIPTIONS, *NOT_FOUND)
