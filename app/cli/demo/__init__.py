"""``waystation demo``: the whole story on a bare machine in under a minute, with real processes and a real database.

The rooms: ``stage`` what it plays on, ``processes`` gateway and worker, ``agent`` what the worker does, ``story`` the
acts, ``screen`` the print.
"""

import asyncio
import json
import signal
import time
from typing import Annotated

import httpx
import typer

from app.cli.demo.processes import DOCTOR
from app.cli.demo.screen import Screen
from app.cli.demo.stage import Stage, open_stage
from app.cli.demo.story import cut_and_resume, kill_and_survive
from app.cli.environment import DatabaseSource
from app.cli.errors import CliError
from app.cli.stopping import stopped_by_sigterm

__all__ = ["demo"]

STORY_SECONDS = 120
"""Far more than it takes: a story that stands still must end."""


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the story instead of serving on.")] = False,
) -> None:
    """See the whole story: send, work, cut, resume by seq, kill -9 and survive.

    Uses DATABASE_URL, else an embedded PostgreSQL of its own; free ports; and leaves nothing running.
    """
    raise typer.Exit(asyncio.run(stopped_by_sigterm(_tell(once=once))))


async def _tell(*, once: bool) -> int:
    screen = Screen()
    started = time.monotonic()
    screen.title("Waystation: a durable task broker for A2A agents")
    screen.act("Set up")
    async with open_stage(lambda source: screen.say(_describe(source))) as stage:
        await stage.start()
        screen.say(f"gateway  pid {stage.gateway.pid}, {stage.url}")
        screen.say(f"worker   pid {stage.worker.pid}, leases the tasks of agent “{stage.agent}”")
        await _play(stage, screen)
        screen.act(f"Where to look next (the story took {time.monotonic() - started:.0f} s)")
        _show_around(stage, screen)
        if once:
            screen.title("\nThat was --once: all is stopped now. `./waystation demo` goes on serving for these lines.")
            return 0
        screen.title("\nServing until Ctrl-C; then everything it started is stopped.")
        await _stop_signal()
        screen.title("\nStopping …")
    return 0


async def _play(stage: Stage, screen: Screen) -> None:
    """Both acts. A failure carries the last lines of gateway and worker: they may know why."""
    try:
        async with asyncio.timeout(STORY_SECONDS):
            await cut_and_resume(stage, screen)
            await kill_and_survive(stage, screen)
    except (TimeoutError, httpx.TransportError) as exc:
        what = f"the story did not go on ({type(exc).__name__})"
        raise CliError(what, remedy=DOCTOR, log=stage.log_tail()) from exc
    except CliError as error:
        error.log = error.log or stage.log_tail()
        raise


async def _stop_signal() -> None:
    """Wait for Ctrl-C or SIGTERM: here they are the way out, not an accident."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def _describe(source: DatabaseSource) -> str:
    where = f"embedded, in {source.data_dir}" if source.data_dir else "yours, from DATABASE_URL"
    return f"PostgreSQL {where}; the schema is at head"


def _show_around(stage: Stage, screen: Screen) -> None:
    base = f"{stage.url}/agents/{stage.agent}"
    message = {"messageId": "hello-1", "role": "ROLE_USER", "parts": [{"text": "count to 3"}]}
    screen.say(f"API        {stage.url}/docs")
    screen.say(f"agent card {base}/.well-known/agent-card.json")
    screen.say("one more task, as any A2A client sends it:")
    screen.command(
        f"curl -s {base}/a2a/message:send -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' "
        f"-H 'Authorization: Bearer {stage.token}' -d '{json.dumps({'message': message})}'"
    )
    screen.say("the CLI, in another terminal:")
    screen.command(f"export WAYSTATION_URL={stage.url} WAYSTATION_TOKEN={stage.token}\n./waystation tasks list")
