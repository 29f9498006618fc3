"""Release review: an ordinary a2a-sdk executor that needs a release named as ``service@1.2.3``.

At the top of the checkout, with a2a-sdk in .venv:

./waystation agents add review
./waystation worker run examples.release_review:ReleaseReview --agent review
"""

import re

from a2a.helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

RELEASE = re.compile(r"\b([a-z][a-z0-9-]*)@(\d+\.\d+\.\d+)\b")
QUESTION = "Which release? Name it as service@1.2.3"


class ReleaseReview(AgentExecutor):
    """Reviews the release that the text names, as an artifact; asks for one (INPUT_REQUIRED) when it names none."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        named = RELEASE.search(context.get_user_input())
        if named is None:
            await task.requires_input(new_text_message(QUESTION))
            return
        service, version = named.groups()
        await task.start_work(new_text_message(f"Reviewing {service} {version}"))
        await task.add_artifact(
            [new_text_part(review(service, version))], artifact_id="review", name="review", last_chunk=True
        )
        await task.complete(new_text_message(f"{service} {version} is reviewed"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def review(service: str, version: str) -> str:
    """What there is to check before a release of this kind goes out."""
    major, minor, patch = version.split(".")
    if patch != "0":
        return f"{service} {version} is a patch release: check that the faults it names are gone."
    if minor != "0":
        return f"{service} {version} is a minor release: check its new settings."
    return f"{service} {version} is a major release: read the migration notes of {major}.0 and plan the way back."
