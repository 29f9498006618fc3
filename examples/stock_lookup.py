"""Stock lookup: an ordinary a2a-sdk executor that asks back, streams an artifact in two chunks, and completes.

It knows nothing of Waystation. At the top of the checkout, with a2a-sdk in .venv:

./waystation agents add stock
./waystation worker run examples.stock_lookup:StockLookup --agent stock
"""

from a2a.helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

QUESTION = "Which SKU? Answer with sku:A"


class StockLookup(AgentExecutor):
    """Answers ``sku:A`` with the artifact ``stock`` = "A:3"; asks for a SKU (INPUT_REQUIRED) after anything else."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if context.get_user_input().strip() != "sku:A":
            await task.requires_input(new_text_message(QUESTION))
            return
        await task.start_work()
        await task.add_artifact([new_text_part("A:")], artifact_id="stock", name="stock", append=False)
        await task.add_artifact([new_text_part("3")], artifact_id="stock", name="stock", append=True, last_chunk=True)
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()
