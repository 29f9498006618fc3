"""The worker protocol of native-api.md by hand, for tests that steer every call. Called by tests."""

from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

from tests.support.plain_http import NO_CERTIFICATES
from tests.support.tokens import bearer, worker_token

Json = dict[str, Any]


class LeaseWorker:
    """Leases tasks of one agent and writes events, one HTTP call per method. Use as an async context manager.

    The methods that return ``httpx.Response`` leave judging to the test.
    """

    def __init__(self, base_url: str, agent: str, tenant: str = "a", *, token: str | None = None) -> None:
        self.agent = agent
        self.worker_id = f"worker-{uuid4().hex[:8]}"
        headers = bearer(token or worker_token(tenant, agent))
        self.http = httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=90, trust_env=False, verify=NO_CERTIFICATES
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def lease(self, max: int = 1, wait: float = 5, **fields: Any) -> list[Json]:
        """The leases granted within ``wait`` seconds, perhaps none; ``fields`` are the body's other ones."""
        body = {"workerId": self.worker_id, "max": max, "waitSeconds": wait} | fields
        answer = await self.http.post(f"/v1/agents/{self.agent}/leases", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["leases"]

    async def lease_one(self, wait: float = 10, **fields: Any) -> Json:
        """Exactly one lease."""
        leases = await self.lease(1, wait, **fields)
        assert len(leases) == 1, leases
        return leases[0]

    async def events(self, lease: Json, *events: Json) -> httpx.Response:
        """Write a batch."""
        return await self.http.post(f"/v1/leases/{lease['leaseId']}/events", json={"events": list(events)})

    async def write(self, lease: Json, *events: Json) -> Json:
        """Write a batch that must be accepted; the answer."""
        answer = await self.events(lease, *events)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def heartbeat(self, *leases: Json, **fields: Any) -> httpx.Response:
        body = {"leaseIds": [lease["leaseId"] for lease in leases]} | fields
        return await self.http.post("/v1/leases/heartbeat", json=body)

    async def retry(self, lease: Json, error: str, **fields: Any) -> httpx.Response:
        return await self.http.post(f"/v1/leases/{lease['leaseId']}/retry", json={"error": error} | fields)

    async def release(self, lease: Json, **fields: Any) -> httpx.Response:
        return await self.http.post(f"/v1/leases/{lease['leaseId']}/release", json=fields)


def status(state: str, text: str | None = None) -> Json:
    """A statusUpdate event: ``state`` without its prefix ("WORKING"), with an agent message when ``text`` is given."""
    content: Json = {"state": f"TASK_STATE_{state}"}
    if text is not None:
        content["message"] = {"messageId": uuid4().hex, "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"statusUpdate": {"status": content}}


def direct(text: str) -> Json:
    """A direct reply: a message that is the only event of its turn."""
    return {"message": {"role": "ROLE_AGENT", "parts": [{"text": text}]}}


def artifact(artifact_id: str, text: str, *, append: bool = False, last: bool = False, **fields: Any) -> Json:
    """An artifactUpdate event with one text part."""
    content = {"artifactId": artifact_id, "parts": [{"text": text}]} | fields
    return {"artifactUpdate": {"artifact": content, "append": append, "lastChunk": last}}
