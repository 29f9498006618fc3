"""The broker's doors with canned operations: token, agent, version, parsing and rendering are as in production.

Called by ``door_side.py``.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from jose import jwt
from pydantic import SecretStr

from app.ledger.rows import Agent
from app.operations import registry
from app.operations.agent_config import parse_config, stored
from app.operations.answers import Answer
from app.operations.deps import Operations
from app.settings import Settings
from tests.bench.broker_side import CARD
from tests.bench.door_calls import AGENT, ANSWERS
from tests.bench.door_side import Application

SECRET = "a-secret-of-this-benchmark-that-is-long-enough"


class _Directory:
    """Always the one agent, as from the directory's cache."""

    def __init__(self) -> None:
        self._agent = Agent(AGENT, "bench", stored(parse_config({"card": CARD})), 1, datetime.now(UTC))

    async def get(self, _agent_id: str) -> Agent:
        return self._agent


def _stub(answer: dict[str, Any]) -> Any:
    async def operation(*_: object) -> Answer:
        return Answer(answer)

    return operation


def application() -> Application:
    """The application as ``app.main`` makes it, with everything mounted but nothing started. Must run before the doors
    are imported: they take the operations from the table as it is then."""
    for name, answer in ANSWERS.items():
        registry.BY_NAME[name] = replace(registry.BY_NAME[name], function=_stub(answer))
    cast("Any", registry).OPERATIONS = tuple(registry.BY_NAME.values())
    from app.main import create_app
    from app.transports.gateway import Gateway

    settings = Settings(auth_mode="dev", dev_secret=SecretStr(SECRET), database_url="postgresql://nowhere")
    app = create_app(settings)
    broker: Any = app.state.broker
    for part in ("db", "readiness", "leasing", "sessions", "notifier"):
        setattr(broker, part, None)
    operations = cast("Operations", SimpleNamespace(directory=_Directory()))
    broker._mount(app, Gateway(settings, broker.verifier, operations))
    base = f"/agents/{AGENT}"
    return Application(app, {"rpc": f"{base}/rpc", "rest": f"{base}/a2a"}, _token())


def _token() -> str:
    now = int(time.time())
    claims = {
        "iss": "waystation-dev", "aud": "waystation", "sub": "bench", "iat": now, "exp": now + 3600, "tenant": "bench",
        "scope": "tasks:read tasks:write tasks:cancel",
    }  # fmt: skip
    return jwt.encode(claims, SECRET, algorithm="HS256")
