"""The other side of the comparison: the official SDK's own server with ``DatabaseTaskStore``, set up as its
documentation does.

Started by ``lifecycles.py`` in a process of its own: ``python -m tests.bench.sdk_server DATABASE_URL PORT POOL_SIZE``.
"""

import sys

import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from tests.bench.scenario import ARTIFACT_ID, CHUNKS


class LifecycleExecutor(AgentExecutor):
    """WORKING, two artifact events, COMPLETED: the task store saves each before the next is taken."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        for index, chunk in enumerate(CHUNKS):
            last = index == len(CHUNKS) - 1
            await updater.add_artifact([Part(text=chunk)], artifact_id=ARTIFACT_ID, append=index > 0, last_chunk=last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def application(database_url: str, port: int, pool_size: int) -> Starlette:
    card = AgentCard(
        name="lifecycle",
        description="The lifecycle of the benchmark",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="lifecycle", name="lifecycle", description="One lifecycle", tags=["bench"])],
    )
    engine = create_async_engine(
        database_url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=pool_size, max_overflow=0
    )
    handler = DefaultRequestHandler(
        agent_executor=LifecycleExecutor(), task_store=DatabaseTaskStore(engine), agent_card=card
    )
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/")])


if __name__ == "__main__":
    url, port_text, pool_text = sys.argv[1:4]
    app = application(url, int(port_text), int(pool_text))
    uvicorn.run(app, host="127.0.0.1", port=int(port_text), log_level="warning", access_log=False)
