"""SendMessage and SendStreamingMessage (A2A v1.0 §3.1.1, §3.1.2, §3.2.2, §3.4; resume-contract.md)."""

from tests.contract.doors import Json, say
from tests.contract.scenarios import Scenario, worlds
from tests.contract.scenarios.worlds import World

NOW = {"configuration": {"returnImmediately": True}}
LOOKUP = ("WORKING", "WORKING: counting", "stock = A:", "stock += 3 (last)", "COMPLETED: done")
DONE = "task COMPLETED: done; asked go; said counting; stock = A:3"


def message(world: World) -> Json:
    return {"message": world.message}


def now(world: World) -> Json:
    return {"message": world.message} | NOW


def follow_up(world: World) -> Json:
    return {"message": say("more", taskId=world.task_id)} | NOW


def waiting_follow_up(world: World) -> Json:
    return {"message": say("this one", taskId=world.task_id)}


def same_id_other_text(world: World) -> Json:
    return {"message": world.message | {"parts": [{"text": "stop"}]}} | NOW


def every_part(world: World) -> Json:
    parts = [
        {"text": "go"},
        {"data": {"a": [1, None, {"b": "ü"}]}},
        {"url": "https://example.org/a.png", "mediaType": "image/png", "filename": "a.png"},
        {"raw": "AAEC", "mediaType": "application/octet-stream"},
    ]
    return {"message": world.message | {"parts": parts}} | NOW


def typed_parts(world: World) -> Json:
    parts = [{"text": "go", "mediaType": "text/plain"}, {"data": [True], "mediaType": "application/json"}]
    return {"message": world.message | {"parts": parts}} | NOW


def message_without(*fields: str) -> Json:
    return {name: value for name, value in say("go").items() if name not in fields}


def options(**values: object) -> Json:
    return {"message": say("go"), "metadata": {"waystation": values}} | NOW


SEND = "SendMessage"
STREAM = "SendStreamingMessage"

OUTCOMES = (
    Scenario("a new task at once", SEND, ("task SUBMITTED; asked go",), params=now),
    Scenario("a new task to its end", SEND, (DONE,), params=message, meanwhile=worlds.work),
    Scenario("a new task to its question", SEND, ("task INPUT_REQUIRED: which one?; asked go",), params=message,
             meanwhile=worlds.ask),
    Scenario("a new task that fails", SEND, ("task FAILED: no stock; asked go",), params=message,
             meanwhile=worlds.fail),
    Scenario("a new task that is rejected", SEND, ("task REJECTED: not mine; asked go",), params=message,
             meanwhile=worlds.reject),
    Scenario("a new task that the worker cancels", SEND, ("task CANCELED; asked go",), params=message,
             meanwhile=worlds.cancel_itself),
    Scenario("a direct reply of an agent that answers with tasks", SEND, ("task COMPLETED: pong; asked go",),
             params=message, meanwhile=worlds.reply),
    Scenario("a direct reply of an agent that answers with messages", SEND, ("message pong",), worlds.talker, message,
             worlds.reply),
    Scenario("a task of an agent that answers with messages", SEND, (DONE,), worlds.talker, message, worlds.work),
    Scenario("every kind of part", SEND,
             ('task SUBMITTED; asked go {"a": [1, null, {"b": "\\u00fc"}]} '
              "<https://example.org/a.png>(image/png)(a.png) b'\\x00\\x01\\x02'(application/octet-stream)",),
             worlds.taking_everything, every_part),
    Scenario("texts and data with media types", SEND,
             ('task SUBMITTED; asked go(text/plain) [true](application/json)',), worlds.taking_everything, typed_parts),
    Scenario("no history", SEND, ("task SUBMITTED",),
             params=lambda w: {"message": w.message, "configuration": {"returnImmediately": True, "historyLength": 0}}),
    Scenario("a message to a submitted task", SEND, ("task SUBMITTED; asked go; asked more",), worlds.submitted,
             follow_up),
    Scenario("a message to a working task", SEND, ("task WORKING; asked go; asked more; stock = A:",), worlds.working,
             follow_up),
    Scenario("the answer to a question", SEND, ("task WORKING; asked go; said which one?; asked more",),
             worlds.input_required, follow_up),
    Scenario("the answer to a question, waited for", SEND,
             ("task COMPLETED: done; asked go; said which one?; asked this one; said counting; stock = A:3",),
             worlds.input_required, waiting_follow_up, worlds.work),
    Scenario("a message after a sign-in", SEND, ("task WORKING; asked go; said sign in; asked more",),
             worlds.auth_required, follow_up),
    Scenario("a context alone is a new task", SEND, ("task SUBMITTED; asked go",), worlds.input_required,
             lambda w: {"message": say("go", contextId=w.context_id)} | NOW),
    Scenario("the same message again", SEND, (DONE.replace("said counting; ", ""),), worlds.completed, message),
)  # fmt: skip

STREAMS = (
    Scenario("a new task's stream", STREAM, ("task SUBMITTED; asked go", *LOOKUP), params=message,
             meanwhile=worlds.work),
    Scenario("a stream closes at a question", STREAM,
             ("task SUBMITTED; asked go", "WORKING", "INPUT_REQUIRED: which one?"), params=message,
             meanwhile=worlds.ask),
    Scenario("a stream stays open at a sign-in", STREAM,
             ("task SUBMITTED; asked go", "WORKING", "AUTH_REQUIRED: sign in", "WORKING", "WORKING", "COMPLETED: done"),
             params=message, meanwhile=worlds.sign_in),
    Scenario("a stream closes when a task fails", STREAM, ("task SUBMITTED; asked go", "WORKING", "FAILED: no stock"),
             params=message, meanwhile=worlds.fail),
    Scenario("a stream closes when a task is rejected", STREAM,
             ("task SUBMITTED; asked go", "WORKING", "REJECTED: not mine"), params=message, meanwhile=worlds.reject),
    Scenario("a direct reply in the stream of an agent that answers with tasks", STREAM,
             ("task SUBMITTED; asked go", "WORKING", "COMPLETED: pong"), params=message, meanwhile=worlds.reply),
    Scenario("a direct reply is the whole stream", STREAM, ("message pong",), worlds.talker, message, worlds.reply),
    Scenario("a stream of an agent that answers with messages", STREAM, ("task SUBMITTED; asked go", *LOOKUP),
             worlds.talker, message, worlds.work),
    Scenario("the stream of an answer", STREAM, ("task WORKING; asked go; said which one?; asked this one", *LOOKUP),
             worlds.input_required, waiting_follow_up, worlds.work),
    Scenario("the stream of a message sent before", STREAM, (DONE.replace("said counting; ", ""),), worlds.completed,
             message),
)  # fmt: skip


def _errors(operation: str) -> tuple[Scenario, ...]:
    return (
        Scenario("to an unknown task", operation, "TASK_NOT_FOUND", worlds.nothing, follow_up),
        Scenario("to a malformed taskId", operation, "TASK_NOT_FOUND",
                 params=lambda _: {"message": say("go", taskId="x")}),
        Scenario("to another tenant's task", operation, "TASK_NOT_FOUND", worlds.of_another_tenant, follow_up),
        Scenario("to another agent's task", operation, "TASK_NOT_FOUND", worlds.of_another_agent, follow_up),
        Scenario("to a completed task", operation, "UNSUPPORTED_OPERATION", worlds.completed, follow_up),
        Scenario("to a failed task", operation, "UNSUPPORTED_OPERATION", worlds.failed, follow_up),
        Scenario("to a rejected task", operation, "UNSUPPORTED_OPERATION", worlds.rejected, follow_up),
        Scenario("to a canceled task", operation, "UNSUPPORTED_OPERATION", worlds.canceled, follow_up),
        Scenario("to a busy task that takes no second message", operation, "TASK_BUSY", worlds.busy_rejects, follow_up),
        Scenario("with a used messageId and another text", operation, "IDEMPOTENCY_CONFLICT", worlds.submitted,
                 same_id_other_text),
        Scenario("with a context that is not the task's", operation, "INVALID_PARAMS", worlds.submitted,
                 lambda w: {"message": say("go", taskId=w.task_id, contextId="another")}),
        Scenario("without parts", operation, "INVALID_PARAMS", params=lambda _: {"message": message_without("parts")}),
        Scenario("without a messageId", operation, "INVALID_PARAMS",
                 params=lambda _: {"message": message_without("messageId")}),
        Scenario("in the agent's name", operation, "INVALID_PARAMS",
                 params=lambda _: {"message": say("go", role="ROLE_AGENT")}),
        Scenario("without a message", operation, "INVALID_PARAMS"),
        Scenario("with a negative historyLength", operation, "INVALID_PARAMS",
                 params=lambda w: {"message": w.message, "configuration": {"historyLength": -1}}),
        Scenario("with an option out of range", operation, "INVALID_PARAMS", params=lambda _: options(priority=10)),
        Scenario("with an option that is not built", operation, "NOT_SUPPORTED",
                 params=lambda _: options(onBusy="interrupt")),
        Scenario("with a part of a type that the agent does not take", operation, "CONTENT_TYPE_NOT_SUPPORTED",
                 params=lambda w: {"message": w.message | {"parts": [{"raw": "AAEC", "mediaType": "image/png"}]}}),
    )  # fmt: skip


ERRORS = (
    *_errors(SEND),
    *_errors(STREAM),
    Scenario("where the card has no streams", STREAM, "UNSUPPORTED_OPERATION", worlds.no_streams, message),
    Scenario("one stream too many", STREAM, "RESOURCE_EXHAUSTED", worlds.all_streams_taken, message,
             claims={"subject": "crowd"}),
)  # fmt: skip

SCENARIOS = (*OUTCOMES, *STREAMS, *ERRORS)
