"""An agent that only the tests need, written as for the official SDK's own server; see also ``examples/``."""

from a2a.helpers import new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater


class ReplacingStockLookup(AgentExecutor):
    """The stock lookup with ``append=false`` on the second chunk, which replaces the first."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await task.start_work()
        await task.add_artifact([new_text_part("A:")], artifact_id="stock", append=False)
        await task.add_artifact([new_text_part("3")], artifact_id="stock", append=False, last_chunk=True)
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()
