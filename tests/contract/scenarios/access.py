"""What every operation says alike: who may call, which agent, which version, which extensions."""

from app.operations.registry import BY_NAME
from tests.contract.doors import Json
from tests.contract.scenarios import Params, Scenario, empty, worlds
from tests.contract.scenarios.worlds import World


def _config(world: World) -> Json:
    return {"taskId": world.task_id, "id": "1"}


GOOD: dict[str, Params] = {
    "SendMessage": lambda w: {"message": w.message, "configuration": {"returnImmediately": True}},
    "SendStreamingMessage": lambda w: {"message": w.message},
    "GetTask": lambda w: {"id": w.task_id},
    "ListTasks": empty,
    "CancelTask": lambda w: {"id": w.task_id},
    "SubscribeToTask": lambda w: {"id": w.task_id},
    "CreateTaskPushNotificationConfig": lambda w: {"taskId": w.task_id, "url": "https://example.org/hook"},
    "GetTaskPushNotificationConfig": _config,
    "ListTaskPushNotificationConfigs": lambda w: {"taskId": w.task_id},
    "DeleteTaskPushNotificationConfig": _config,
    "GetExtendedAgentCard": empty,
}
"""Parameters of each operation that are right."""

OTHER_SCOPES = "agents:read agents:admin metrics:read"


def _rows(operation: str) -> tuple[Scenario, ...]:
    good = GOOD[operation]
    return (
        Scenario("with a bad token", operation, "UNAUTHENTICATED", params=good, claims={"secret": "x" * 40}),
        Scenario("with an expired token", operation, "UNAUTHENTICATED", params=good, claims={"seconds": -60}),
        Scenario("without the scope", operation, "INSUFFICIENT_SCOPE", params=good, claims={"scope": OTHER_SCOPES}),
        Scenario("of an unknown agent", operation, "NOT_FOUND", worlds.at_an_unknown_agent, good),
        Scenario("of a private agent of another tenant", operation, "NOT_FOUND", worlds.submitted, good,
                 claims={"tenant": "b"}),
        Scenario("with an unsupported version", operation, "VERSION_NOT_SUPPORTED", worlds.submitted, good,
                 headers={"A2A_Version": "99.0"}),
        Scenario("without an extension that the card requires", operation, "EXTENSION_SUPPORT_REQUIRED",
                 worlds.needing_an_extension, good),
        Scenario("with an Idempotency-Key that is too long", operation, "INVALID_ARGUMENT", worlds.submitted, good,
                 headers={"Idempotency_Key": "k" * 257}),
    )  # fmt: skip


SCENARIOS = tuple(row for operation in BY_NAME for row in _rows(operation))
