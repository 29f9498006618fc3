"""Push notification configs (A2A v1.0 §3.1.7 to §3.1.10, §3.2.2)."""

from tests.contract.doors import Json
from tests.contract.scenarios import Scenario, worlds
from tests.contract.scenarios.worlds import HOOK, World

CREATE, GET, LIST, DELETE = (f"{verb}TaskPushNotificationConfig{'s' if verb == 'List' else ''}"
                             for verb in ("Create", "Get", "List", "Delete"))  # fmt: skip
BEARER = {"authentication": {"scheme": "Bearer", "credentials": "secret"}}
PRIVATE = "https://10.0.0.1/hook"


def new(world: World) -> Json:
    return {"taskId": world.task_id, "url": HOOK} | BEARER


def the_config(world: World) -> Json:
    return {"taskId": world.task_id, "id": world.config_id}


def the_task(world: World) -> Json:
    return {"taskId": world.task_id}


def another(world: World) -> Json:
    return {"taskId": world.task_id, "id": "another"}


def private(world: World) -> Json:
    return {"taskId": world.task_id, "url": PRIVATE}


def two_lines(world: World) -> Json:
    return new(world) | {"authentication": {"scheme": "Bearer", "credentials": "a\r\nX-Evil: 1"}}


def without_url(world: World) -> Json:
    return {"taskId": world.task_id}


def long_config_id(world: World) -> Json:
    return {"taskId": world.task_id, "id": "x" * 257}


def with_message(url: str) -> Json:
    return {"configuration": {"returnImmediately": True, "taskPushNotificationConfig": {"url": url} | BEARER}}


OUTCOMES = (
    Scenario("a new config", CREATE, (f"config {HOOK} Bearer",), worlds.submitted, new),
    Scenario("a config", GET, (f"config {HOOK} Bearer",), worlds.configured, the_config),
    Scenario("the configs of a task", LIST, (f"config {HOOK} Bearer",), worlds.configured, the_task),
    Scenario("no configs", LIST, (), worlds.submitted, the_task),
    Scenario("a config", DELETE, ("done",), worlds.configured, the_config),
    Scenario("a config that is gone", DELETE, ("done",), worlds.configured, another),
    Scenario("a config with the message", "SendMessage", ("task SUBMITTED; asked go",),
             params=lambda w: {"message": w.message} | with_message(HOOK)),
)  # fmt: skip

ERRORS = (
    Scenario("a config that is unknown", GET, "TASK_NOT_FOUND", worlds.configured, another),
    Scenario("a private address", CREATE, "INVALID_PARAMS", worlds.submitted, private),
    Scenario("credentials of two lines", CREATE, "INVALID_PARAMS", worlds.submitted, two_lines),
    Scenario("no url", CREATE, "INVALID_PARAMS", worlds.submitted, without_url),
    Scenario("a bad pageSize", LIST, "INVALID_PARAMS", worlds.submitted,
             lambda w: {"taskId": w.task_id, "pageSize": 101}),
    Scenario("an id that is too long", GET, "INVALID_PARAMS", worlds.submitted, long_config_id),
    Scenario("an id that is too long", DELETE, "INVALID_PARAMS", worlds.submitted, long_config_id),
    *(Scenario("a private address with the message", operation, "INVALID_PARAMS",
               params=lambda w: {"message": w.message} | with_message(PRIVATE))
      for operation in ("SendMessage", "SendStreamingMessage")),
    *(Scenario("a config with the message where the card has none", operation, "PUSH_NOTIFICATION_NOT_SUPPORTED",
               worlds.no_push, lambda w: {"message": w.message} | with_message(HOOK))
      for operation in ("SendMessage", "SendStreamingMessage")),
    *(row
      for operation, params in ((CREATE, new), (GET, the_config), (LIST, the_task), (DELETE, the_config))
      for row in (
          Scenario("of an unknown task", operation, "TASK_NOT_FOUND", params=params),
          Scenario("of another tenant's task", operation, "TASK_NOT_FOUND", worlds.of_another_tenant, params),
          Scenario("of another agent's task", operation, "TASK_NOT_FOUND", worlds.of_another_agent, params),
          Scenario("where the card has none", operation, "PUSH_NOTIFICATION_NOT_SUPPORTED", worlds.no_push, params),
      )),
)  # fmt: skip

SCENARIOS = (*OUTCOMES, *ERRORS)
