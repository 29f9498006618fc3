"""Shows a task's events as they come, its end as an exit code. Behind ``tasks watch`` and ``send --follow``."""

from rich.console import Console
from rich.text import Text

from app.cli.broker import Broker, segment
from app.cli.errors import CliError
from app.cli.follow import Follower, state_of
from app.cli.frames import Frame
from app.cli.output import JsonObject, OutputFormat, console, note, print_json, print_ndjson, printable
from app.cli.render import event_summary
from app.protocol.states import INTERRUPTED, TaskState

UNKNOWN_OUTCOME = 5
"""The task could not be followed to its end: it may be doing well."""
EXIT_CODES = {
    TaskState.COMPLETED: 0,
    TaskState.FAILED: 1,
    TaskState.CANCELED: 3,
    TaskState.REJECTED: 3,
    TaskState.INPUT_REQUIRED: 4,
    TaskState.AUTH_REQUIRED: 4,
}
_STYLES = {0: "green", 1: "red", 3: "yellow", 4: "yellow"}


async def watch(broker: Broker, task_id: str, *, after: str, output: OutputFormat) -> int:
    """Print the events after the cursor ``after`` until the task ends or waits for its client; answer the exit code of
    that state. A pause that was answered meanwhile is passed over. Raises CliError (exit code UNKNOWN_OUTCOME)."""
    seen: list[JsonObject] = []
    screen = console()
    try:
        async for frame in Follower(broker, task_id, after, note).events():
            if output is OutputFormat.TABLE:
                print_event(screen, frame)
            elif output is OutputFormat.NDJSON:
                print_ndjson([frame.data])
            else:
                seen.append(frame.data)
            if state_of(frame) in INTERRUPTED and await _is_last(broker, task_id, frame):
                break
        view = await broker.call("GET", f"/v1/tasks/{segment(task_id)}", retry=True)
    except CliError as error:
        error.exit_code = UNKNOWN_OUTCOME
        raise
    if output is OutputFormat.JSON:
        print_json(seen)
    return _verdict(view, task_id)


def print_event(screen: Console, frame: Frame, mark: str = " ") -> None:
    """One line: seq, kind, what it says. ``mark`` is one character before it."""
    kind = Text(f"{printable(frame.kind):<18}", style="cyan" if state_of(frame) is None else _style(state_of(frame)))
    screen.print(Text(f"{mark}{frame.seq:>4}  ").append_text(kind).append(event_summary(frame)), soft_wrap=True)


def _style(state: TaskState | None) -> str:
    return _STYLES.get(EXIT_CODES.get(state, -1) if state else -1, "blue")


async def _is_last(broker: Broker, task_id: str, frame: Frame) -> bool:
    view = await broker.call("GET", f"/v1/tasks/{segment(task_id)}", retry=True)
    return int(view["lastSeq"]) == frame.seq


def _verdict(view: JsonObject, task_id: str) -> int:
    state = TaskState.parse(view["state"])
    hint_at_answer(view["agent"], task_id, state)
    return EXIT_CODES.get(state, UNKNOWN_OUTCOME)


def hint_at_answer(agent: str, task_id: str, state: TaskState) -> None:
    """Say how a task that waits for its client goes on; nothing for one that does not."""
    if state in INTERRUPTED:
        what = "input" if state is TaskState.INPUT_REQUIRED else "authentication"
        note(f"waiting for {what}: waystation send {agent} --task {task_id} 'your answer'")
