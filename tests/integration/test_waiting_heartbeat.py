"""A heartbeat that waits for news keeps the lease for its whole length, and no longer."""

from datetime import datetime
from uuid import uuid4

import httpx

from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker


async def test_a_wait_without_news_leaves_the_lease_as_it_was_extended(broker: BrokerProcess) -> None:
    broker.register_agent("patient", leaseSeconds=30)
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "work"}]}
    headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
    async with (
        LeaseWorker(broker.base_url, "patient") as worker,
        httpx.AsyncClient(base_url=broker.base_url, headers=headers, trust_env=False) as client,
    ):
        request = {"message": message, "configuration": {"returnImmediately": True}}
        task = (await client.post("/agents/patient/a2a/message:send", json=request)).json()["task"]["id"]
        lease = await worker.lease_one()
        beat = (await worker.heartbeat(lease, waitSeconds=1)).json()["results"][0]
        assert (beat["ok"], beat["signal"]) == (True, None)
        assert beat["expiresAt"] >= lease["expiresAt"]
        held = (await client.get(f"/v1/tasks/{task}")).json()["lease"]
        assert held["expiresAt"] == beat["expiresAt"]
        left = datetime.fromisoformat(beat["expiresAt"]) - datetime.fromisoformat(lease["expiresAt"])
        assert left.total_seconds() < 1, "the wait itself must not extend: a stopped worker would keep its leases"
