"""What a door cannot say, and why: the rows of the table that are not tried there."""

from collections.abc import Collection
from dataclasses import dataclass

from app.operations.registry import BY_NAME
from tests.contract.scenarios import Scenario

CONFIGS = frozenset(name for name in BY_NAME if "PushNotificationConfig" in name)


@dataclass(frozen=True)
class Limit:
    """Excludes rows of ``operations`` (all of them, if none are named): those named in ``rows``, or those not named in
    ``all_but``."""

    why: str
    operations: Collection[str] = ()
    rows: Collection[str] = ()
    all_but: Collection[str] = ()

    def excludes(self, row: Scenario) -> bool:
        if self.operations and row.operation not in self.operations:
            return False
        return row.name in self.rows if self.rows else row.name not in self.all_but


V0_3 = (
    Limit("0.3 has no such method", {"ListTasks"}),
    Limit("in 0.3 a historyLength of 0 means all", rows={"no history", "a task without its history"}),
    Limit("in 0.3 lists of configs have no pages", {"ListTaskPushNotificationConfigs"}, rows={"a bad pageSize"}),
    Limit("in 0.3 texts and data have no media type", rows={"texts and data with media types"}),
)
ACCESS = {"with a bad token", "with an expired token", "without the scope", "of an unknown agent",
          "of a private agent of another tenant", "without an extension that the card requires",
          "with an Idempotency-Key that is too long"}  # fmt: skip
MISSING = {
    "an unknown task",
    "a malformed id",
    "another tenant's task",
    "another agent's task",
    "an id that is too long",
}
LIMITS: dict[str, tuple[Limit, ...]] = {
    "jsonrpc-0.3": V0_3,
    "rest-0.3": V0_3,
    "legacy": (
        Limit("the dialect has no such call", {"SendStreamingMessage", "ListTasks", "GetExtendedAgentCard", *CONFIGS}),
        Limit("a submit is one text or datum, always a new task, and never waits", {"SendMessage"},
              all_but={"a new task at once", *ACCESS}),
        Limit("its streams replay from the start, in words of their own", {"SubscribeToTask"},
              all_but=ACCESS | MISSING),
        Limit("it knows no versions", {"GetTask", "CancelTask"}, rows={"with an unsupported version"}),
        Limit("it shows no history of messages", {"GetTask", "CancelTask"},
              rows={"a task without its history", "a negative historyLength", "a task with a question"}),
        Limit("it has no word for this state", {"GetTask"}, rows={"a rejected task", "a task that needs a sign-in"}),
    ),
}  # fmt: skip


def why_not(row: Scenario, door: str) -> str | None:
    """Why the row is not tried at this door; None: it is."""
    return next((limit.why for limit in LIMITS.get(door, ()) if limit.excludes(row)), None)
