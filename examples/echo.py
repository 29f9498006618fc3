"""The smallest agent: ``WAYSTATION_TOKEN=… python examples/echo.py`` works for the agent ``echo``."""

from waystation_worker import Context, Worker

worker = Worker()


@worker.agent("echo")
async def echo(ctx: Context) -> str:
    return f"You said: {ctx.text}"


if __name__ == "__main__":
    worker.run()
