"""A short hand for tests of the outbox: configs without secrets, claims, and what a line looks like."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from app.ledger import deliveries, push_configs, transitions
from app.ledger.deliveries import Delivery, DeliveryState, Receiver
from app.ledger.inputs import Keys
from app.ledger.push_configs import NewPushConfig
from tests.support.ledger import QUICK, Bench, message

HOLD = 60.0
NO_GRACE = replace(QUICK, cancel_grace_seconds=0)


def config(
    config_id: str = "c", url: str = "https://one.example/hook", *, secret: bytes | None = None
) -> NewPushConfig:
    return NewPushConfig(config_id, url, None, secret, url[: url.index("/", 8)] + ":443")


async def configure(bench: Bench, task_id: UUID, config: NewPushConfig, *, agent: str | None = None) -> object:
    return await push_configs.create(
        bench.db,
        tenant=bench.tenant,
        subject=bench.subject,
        agent_id=agent or bench.agent,
        task_id=task_id,
        config=config,
    )


async def submit_with(bench: Bench, config: NewPushConfig, message_id: str | None = None, text: str = "hi") -> Any:
    body, message_id = message(text, message_id)
    return await transitions.submit(
        bench.db, tenant=bench.tenant, subject=bench.subject, agent_id=bench.agent, context_id=None, message=body,
        keys=Keys(message_id, None, body.encode()), settings=NO_GRACE, push_config=config,
    )  # fmt: skip


async def send_with(bench: Bench, task_id: UUID, config: NewPushConfig, message_id: str | None = None) -> Any:
    body, message_id = message("more", message_id)
    return await transitions.send(
        bench.db, tenant=bench.tenant, subject=bench.subject, agent_id=bench.agent, task_id=task_id, context_id=None,
        message=body, keys=Keys(message_id, None, body.encode()), on_busy=None, push_config=config,
    )  # fmt: skip


async def claim(
    bench: Bench, *, limit: int = 100, limit_bytes: int = 2**40, per_receiver: int = 100,
    busy: Mapping[Receiver, int] | None = None, avoid: tuple[Receiver, ...] = (), full: tuple[str, ...] = (),
    hold: float = HOLD,
) -> list[Delivery]:  # fmt: skip
    return await deliveries.claim(
        bench.db, limit=limit, limit_bytes=limit_bytes, per_receiver=per_receiver, busy=busy or {}, avoid=avoid,
        full=full, hold_seconds=hold,
    )  # fmt: skip


async def rows(bench: Bench, task_id: UUID | None = None, state: str | None = None) -> list[DeliveryState]:
    """In the order of configs and seqs."""
    found = await deliveries.list_deliveries(bench.db, bench.tenant, task_id=task_id, state=state, limit=100_000)
    return found[::-1]


async def seqs(bench: Bench, task_id: UUID, config_id: str = "c") -> list[int]:
    return [row.key.seq for row in await rows(bench, task_id) if row.key.config_id == config_id]


async def due(bench: Bench, task_id: UUID | None = None) -> list[tuple[int, datetime]]:
    return [(row.key.seq, row.due_at) for row in await rows(bench, task_id) if row.due_at is not None]


async def forget_event(database_url: str, task_id: UUID, seq: int) -> None:
    """As when its partition was dropped; only the owner can."""
    owner = await asyncpg.connect(database_url)
    try:
        gone = await owner.execute("DELETE FROM events WHERE task_id = $1 AND seq = $2", task_id, seq)
        assert gone == "DELETE 1"
    finally:
        await owner.close()


async def drain(bench: Bench) -> list[tuple[str, int]]:
    """Deliver whatever is due until nothing is; (config, seq) in the order of delivery."""
    order: list[tuple[str, int]] = []
    while taken := await claim(bench):
        for one in taken:
            assert await deliveries.delivered(bench.db, one, 200)
            order.append((one.config_id, one.seq))
    return order
