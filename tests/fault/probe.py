"""Asks every door of a replica while PostgreSQL is away. Called by test_outage.py."""

import asyncio
import time
from typing import Any, Self

import httpx

from tests.contract.doors import say
from tests.support.broker import BrokerProcess
from tests.support.tokens import bearer, mint, worker_token
from tests.support.worker import artifact

Json = dict[str, Any]
CLIENT = bearer(mint("a")) | {"A2A-Version": "1.0"}
SOON = 8.0
"""Seconds for what takes at most 3 on a machine that has nothing else to do."""


class Probe:
    """All doors of one replica: each must say 503 now."""

    def __init__(self, broker: BrokerProcess, agent: str, task: str, lease: str) -> None:
        self._agent = agent
        self._http = httpx.AsyncClient(base_url=broker.base_url, trust_env=False, timeout=30)
        a2a, v1 = f"/agents/{agent}/a2a", "/v1"
        message = {"message": say("x"), "configuration": {"returnImmediately": True}}
        admin, worker = bearer(mint("a", "admin", "agents:admin agents:read")), bearer(worker_token("a", agent))
        one = {"id": task}
        rpc = {
            "SendMessage": message, "SendStreamingMessage": {"message": say("x")}, "GetTask": one, "ListTasks": {},
            "CancelTask": one, "SubscribeToTask": one,
        }  # fmt: skip
        self._calls: list[tuple[str, str, Json, Json | None]] = [
            *(
                (
                    "POST",
                    f"/agents/{agent}/rpc",
                    CLIENT,
                    {"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
                )
                for method, params in rpc.items()
            ),
            ("POST", f"{a2a}/message:send", CLIENT, message),
            ("POST", f"{a2a}/message:stream", CLIENT, {"message": say("x")}),
            ("POST", f"{a2a}/tasks/{task}:cancel", CLIENT, {}),
            *(("GET", f"{a2a}/tasks{tail}", CLIENT, None) for tail in ("", f"/{task}", f"/{task}:subscribe")),
            *(("GET", f"{v1}/tasks{tail}", CLIENT, None) for tail in ("", f"/{task}", f"/{task}/turns")),
            ("GET", f"{v1}/tasks/{task}/events", CLIENT, None),
            ("GET", f"{v1}/tasks/{task}/events", CLIENT | {"Accept": "application/json"}, None),
            ("GET", f"{v1}/agents", admin, None),
            ("GET", f"{v1}/agents/{agent}", admin, None),
            ("DELETE", f"{v1}/agents/{agent}", admin, None),
            ("POST", f"{v1}/agents/{agent}/leases", worker, {"workerId": "probe", "waitSeconds": 5}),
            ("POST", f"{v1}/leases/heartbeat", worker, {"leaseIds": [lease], "waitSeconds": 5}),
            ("POST", f"{v1}/leases/{lease}/events", worker, {"events": [artifact("x", "y")]}),
            ("POST", f"{v1}/leases/{lease}/retry", worker, {"error": "x"}),
            ("POST", f"{v1}/leases/{lease}/release", worker, {}),
        ]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def all_unavailable(self) -> None:
        """Every door, again and again for a while; livez and metrics answer all the same."""
        for _ in range(3):
            await asyncio.gather(*(self._unavailable(*call) for call in self._calls))
        for path, headers in (("/livez", {}), ("/metrics", bearer(mint("ops", scope="metrics:read")))):
            assert (await self._http.get(path, headers=headers)).status_code == 200

    async def _unavailable(self, method: str, path: str, headers: Json, body: Json | None) -> None:
        start = time.monotonic()
        answer = await self._http.request(method, path, headers=headers, json=body)
        assert answer.status_code == 503, f"{method} {path} {body}: {answer.status_code} {answer.text}"
        assert time.monotonic() - start < SOON, f"{method} {path}"
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        error = answer.json()["error"]
        (info,) = error["data"] if path.endswith("/rpc") else error["details"]
        assert info["reason"] == "UNAVAILABLE"

    async def becomes(self, ready: bool) -> None:
        """Readiness believes what it heard for 10 s."""
        async with asyncio.timeout(30):
            while ((await self._http.get("/readyz")).status_code == 200) is not ready:
                await asyncio.sleep(0.1)

    async def first_success(self) -> float:
        """Seconds until a message is accepted; every other answer until then is 503."""
        start = time.monotonic()
        body = {"message": say("x"), "configuration": {"returnImmediately": True}}
        while True:
            answer = await self._http.post(f"/agents/{self._agent}/a2a/message:send", json=body, headers=CLIENT)
            if answer.status_code == 200:
                return time.monotonic() - start
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.02)
