"""The smallest agent that is a program of its own, with the worker SDK. At the top of the checkout:

./waystation agents add echo
WAYSTATION_TOKEN=$(./waystation token mint --agents echo) .venv/bin/python examples/echo.py
"""

from waystation_worker import Context, Worker

worker = Worker()


@worker.agent("echo")
async def echo(ctx: Context) -> str:
    return f"You said: {ctx.text}"


if __name__ == "__main__":
    worker.run()
