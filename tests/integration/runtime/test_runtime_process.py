"""The broker's process: how it starts, what it says about itself, and how it ends."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.fault.watching import gauge, until
from tests.support.broker import BrokerProcess
from tests.support.calls import native_events, send
from tests.support.oidc import AUDIENCE, Forge, OidcServer, rsa_jwk
from tests.support.postgres import OwnPostgres, SharedPostgres
from tests.support.tokens import bearer, mint
from tests.support.worker import LeaseWorker, status


def get(broker: BrokerProcess, path: str, token: str | None = None, **headers: str) -> httpx.Response:
    return httpx.get(
        f"{broker.base_url}{path}", headers=(bearer(token) if token else {}) | headers, trust_env=False, timeout=10
    )


def log_lines(broker: BrokerProcess) -> list[dict[str, str]]:
    return [json.loads(line) for line in broker.output().splitlines()]


# Health, metrics, documents -------------------------------------------------------------------------------------------


def test_open_documents_and_metrics(broker: BrokerProcess) -> None:
    live = get(broker, "/livez")
    assert (live.status_code, live.json()) == (200, {"status": "ok"})
    ready = get(broker, "/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "reasons": []})
    assert get(broker, "/metrics").status_code == 401
    assert get(broker, "/metrics", mint("a", scope="tasks:read admin")).status_code == 403
    get(broker, "/v1/agents", "x.y.z")
    get(broker, "/nowhere/at/all")
    metrics = get(broker, "/metrics", mint("a", scope="metrics:read"))
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'waystation_requests_total{method="GET",route="/livez",status="200"} 1.0' in metrics.text
    assert 'waystation_requests_total{method="GET",route="unmatched",status="404"} 1.0' in metrics.text
    assert 'waystation_auth_failures_total{reason="malformed"} 1.0' in metrics.text
    assert "waystation_streams_open 0.0" in metrics.text
    assert "waystation_wakeups_connected 1.0" in metrics.text


def test_the_api_describes_itself(broker: BrokerProcess) -> None:
    document = get(broker, "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    paths = document["paths"]
    for path, method, scope in (
        ("/v1/agents/{agent}", "put", "agents:admin"),
        ("/v1/agents/{agent}/leases", "post", "worker:lease"),
        ("/v1/leases/{lease_id}/events", "post", "worker:lease"),
        ("/v1/tasks/{id}", "get", "tasks:read"),
        ("/metrics", "get", "metrics:read"),
    ):
        assert paths[path][method]["security"] == [{"bearer": [scope]}]
    assert "security" not in paths["/livez"]["get"]
    schemas = document["components"]["schemas"]
    assert schemas["LeaseRequest"]["properties"]["waitSeconds"]["maximum"] == 60
    page = get(broker, "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/v1/leases/heartbeat" in page.text
    assert "<script" not in page.text
    assert "http" not in page.text.replace("https://waystation.dev", ""), "nothing is fetched from elsewhere"


def test_the_challenge_leads_to_the_document_of_accepted_tokens(broker: BrokerProcess) -> None:
    challenge = get(broker, "/v1/agents").headers["www-authenticate"]
    url = challenge.partition('resource_metadata="')[2].partition('"')[0]
    assert url == f"{broker.base_url}/.well-known/oauth-protected-resource"
    document = httpx.get(url, trust_env=False).json()
    assert document["resource"] == broker.base_url
    assert {"tasks:read", "worker:lease", "admin"} <= set(document["scopes_supported"])
    assert document["bearer_methods_supported"] == ["header"]
    assert "authorization_servers" not in document, "dev tokens come from nowhere"


def test_counters_follow_a_task(broker: BrokerProcess) -> None:
    broker.register_agent("x")

    async def story() -> None:
        async with (
            LeaseWorker(broker.base_url, "x") as worker,
            httpx.AsyncClient(
                base_url=broker.base_url, headers=bearer(mint("a")) | {"A2A-Version": "1.0"}, trust_env=False
            ) as user,
        ):
            await send(user, "x")
            lease = await worker.lease_one()
            await worker.write(lease, status("COMPLETED"))
            assert (await worker.events(lease, status("WORKING"))).status_code == 409

    asyncio.run(story())
    text = get(broker, "/metrics", mint("a", scope="metrics:read")).text
    for line in (
        'waystation_task_transitions_total{state="SUBMITTED"} 1.0',
        'waystation_task_transitions_total{state="WORKING"} 1.0',
        'waystation_task_transitions_total{state="COMPLETED"} 1.0',
        "waystation_leases_total 1.0",
        "waystation_races_lost_total 1.0",
        "waystation_submit_seconds_count 1.0",
        "waystation_task_seconds_count 1.0",
        'waystation_requests_total{method="POST",route="/v1/leases/{lease_id}/events",status="409"} 1.0',
    ):
        assert line in text, line
    assert "waystation_claim_seconds_count 0.0" not in text
    assert "waystation_pool_wait_seconds_count 0.0" not in text


# Start ----------------------------------------------------------------------------------------------------------------


def test_it_is_ready_before_its_default_agent_is_registered(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(WAYSTATION_DEFAULT_AGENT="main")
    token = mint("a")
    assert get(broker, "/a2a/tasks", token, **{"A2A-Version": "1.0"}).status_code == 404
    broker.register_agent("main")
    deadline = time.monotonic() + 5
    while (answer := get(broker, "/a2a/tasks", token, **{"A2A-Version": "1.0"})).status_code != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)


def test_a_taken_port_is_said_in_one_line(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = BrokerProcess(database_url, tmp_path / "log")
        broker.port = taken.getsockname()[1]
        broker.spawn()
        try:
            assert broker.wait_end(30) == 1
        finally:
            broker.close()
        assert f"port {broker.port}" in log_lines(broker)[-1]["message"]
        assert "Traceback" not in broker.output()


# Stop -----------------------------------------------------------------------------------------------------------------


def test_sigterm_ends_idle_streams_pollers_and_heartbeats_at_once(broker: BrokerProcess) -> None:
    broker.register_agent("x")
    asyncio.run(_stop_under_load(broker))


async def _stop_under_load(broker: BrokerProcess) -> None:
    headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
    async with (
        LeaseWorker(broker.base_url, "x") as worker,
        httpx.AsyncClient(base_url=broker.base_url, headers=headers, timeout=60, trust_env=False) as user,
    ):
        tasks = [await send(user, "x") for _ in range(10)]
        held = await worker.lease_one()
        await worker.lease(100)
        beat = asyncio.create_task(worker.heartbeat(held, waitSeconds=20))
        poll = asyncio.create_task(worker.lease(wait=60))
        blocked = asyncio.create_task(send(user, "x", wait=True, taskId=held["taskId"]))
        streams = [asyncio.create_task(_read_stream(user, task["id"])) for task in tasks]
        await until(lambda: gauge(broker, "pollers_waiting") == 1 and gauge(broker, "streams_open") == len(streams))
        async with asyncio.timeout(20):
            while (await native_events(user, held["taskId"]))[-1]["kind"] != "message.user":
                await asyncio.sleep(0.02)
        assert not any(call.done() for call in (beat, poll, blocked, *streams))
        start = time.monotonic()
        broker.signal(signal.SIGTERM)
        assert (await beat).json()["results"][0]["ok"]
        assert await poll == []
        assert (await blocked)["status"]["state"] == "TASK_STATE_WORKING"
        endings = await asyncio.gather(*streams)
        assert all("retry:" in ending for ending in endings), "each stream says when to come back"
        code = await asyncio.to_thread(broker.wait_end, 10)
        assert code == 0
        assert time.monotonic() - start < 6
    assert "Traceback" not in broker.output()


async def _read_stream(user: httpx.AsyncClient, task_id: str) -> str:
    """A native stream to its end, which must be a clean one; what came after the first frames."""
    text = ""
    async with user.stream("GET", f"/v1/tasks/{task_id}/events", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        async for chunk in answer.aiter_text():
            text += chunk
    return text.partition("event:")[2]


def test_sigint_ends_it_too_and_leases_live_on(
    broker: BrokerProcess, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker.register_agent("x")

    async def before() -> dict[str, str]:
        async with (
            LeaseWorker(broker.base_url, "x") as worker,
            httpx.AsyncClient(
                base_url=broker.base_url, headers=bearer(mint("a")) | {"A2A-Version": "1.0"}, trust_env=False
            ) as user,
        ):
            await send(user, "x")
            return await worker.lease_one()

    lease = asyncio.run(before())
    broker.signal(signal.SIGINT)
    assert broker.wait_end(10) == 0
    broker.start()

    async def after() -> None:
        async with LeaseWorker(broker.base_url, "x") as worker:
            answer = await worker.write(lease, status("COMPLETED"))
            assert answer["state"] == "TASK_STATE_COMPLETED"

    asyncio.run(after())


# Logs -----------------------------------------------------------------------------------------------------------------


def test_logs_are_json_without_tokens_and_query_strings(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(WAYSTATION_LOG_LEVEL="debug")
    token = mint("a", scope="tasks:read")
    get(broker, "/v1/tasks?secret=hunter2", token)
    get(broker, f"/v1/tasks?access_token={token}", token)
    get(broker, "/v1/tasks", "bad.token.here")
    assert broker.terminate() == 0
    lines = log_lines(broker)
    assert lines
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    text = broker.output()
    assert token not in text
    assert token.split(".")[1] not in text
    assert "hunter2" not in text
    assert "bad.token.here" not in text


# Outages of PostgreSQL ------------------------------------------------------------------------------------------------


async def test_postgres_away_is_503_within_three_seconds_and_then_all_goes_on(
    own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    server = SharedPostgres(own_postgres.dsn(), own_postgres.bin)
    dsn = server.dsn(await server.template())
    broker = BrokerProcess(dsn, tmp_path / "log")
    try:
        broker.start()
        broker.register_agent("x")
        await _through_an_outage(broker, own_postgres)
        assert broker.terminate() == 0
    finally:
        broker.close()
        print(broker.output())
    assert "Traceback" not in broker.output()


async def test_it_starts_while_postgres_is_briefly_away(own_postgres: OwnPostgres, tmp_path: Path) -> None:
    server = SharedPostgres(own_postgres.dsn(), own_postgres.bin)
    dsn = server.dsn(await server.template())
    await own_postgres.kill()
    broker = BrokerProcess(dsn, tmp_path / "log")
    try:
        broker.spawn()
        await knocked(urlsplit(dsn).port)
        await own_postgres.resume()
        await asyncio.to_thread(broker.wait_ready)
    finally:
        broker.close()
        print(broker.output())


async def knocked(port: int | None) -> None:
    """Until somebody has tried to connect to a port at which nobody listens otherwise; it is cut off at once."""
    knock = asyncio.Event()

    def cut_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        knock.set()

    async with await asyncio.start_server(cut_off, "127.0.0.1", port):
        await asyncio.wait_for(knock.wait(), 30)


async def _through_an_outage(broker: BrokerProcess, server: OwnPostgres) -> None:
    headers = bearer(mint("a")) | {"A2A-Version": "1.0"}
    async with (
        LeaseWorker(broker.base_url, "x") as worker,
        httpx.AsyncClient(base_url=broker.base_url, headers=headers, timeout=30, trust_env=False) as user,
    ):
        task = await send(user, "x")
        lease = await worker.lease_one()
        poll = asyncio.create_task(worker.http.post("/v1/agents/x/leases", json={"workerId": "w", "waitSeconds": 60}))
        await until(lambda: gauge(broker, "pollers_waiting") == 1)
        await server.kill()
        batch = {"producerEventId": "e1"} | status("WORKING", "still here")
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
        for call in (
            lambda: worker.events(lease, batch),
            lambda: worker.heartbeat(lease),
            lambda: worker.retry(lease, "x"),
            lambda: worker.http.post("/v1/agents/x/leases", json={"workerId": "w", "waitSeconds": 5}),
            lambda: user.get(f"/v1/tasks/{task['id']}"),
            lambda: user.post("/agents/x/a2a/message:send", json=body),
        ):
            start = time.monotonic()
            answer = await call()
            assert answer.status_code == 503, answer.text
            assert 1 <= int(answer.headers["retry-after"]) <= 5
            assert time.monotonic() - start < 3
        assert (await poll).status_code == 503
        assert (await user.get("/livez")).status_code == 200
        async with asyncio.timeout(15):
            while (ready := await user.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.2)
        assert "PostgreSQL" in ready.json()["reasons"][0]
        await server.resume()
        start = time.monotonic()
        while (answer := await worker.events(lease, batch)).status_code == 503:
            await asyncio.sleep(0.05)
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - start < 3
        async with asyncio.timeout(5):
            while (await user.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.1)
        assert (await worker.write(lease, batch))["duplicates"] == [0]
        await worker.write(lease, status("COMPLETED"))


# OIDC ----------------------------------------------------------------------------------------------------------------


async def test_with_oidc_it_is_ready_when_the_issuers_keys_have_come(database_url: str, tmp_path: Path) -> None:
    async with OidcServer(keys=[rsa_jwk("rsa")]) as provider:
        token = Forge(provider.issuer).token()
        issuer = {
            "issuer": provider.issuer,
            "audience": AUDIENCE,
            "tenantRule": "claim:tenant",
            "tenants": ["a"],
        }
        broker = BrokerProcess(
            database_url,
            tmp_path / "log",
            WAYSTATION_AUTH_MODE="oidc",
            WAYSTATION_ISSUERS=json.dumps([issuer]),
            WAYSTATION_SECRET_KEY="x" * 32,
        )
        await provider.down()
        try:
            broker.spawn()
            async with httpx.AsyncClient(base_url=broker.base_url, trust_env=False, timeout=20) as client:
                reasons = await _reasons(client)
                assert reasons == [f"no keys yet from {provider.issuer}"]
                away = await client.get("/v1/tasks", headers=bearer(token))
                assert away.status_code == 503
                assert int(away.headers["retry-after"]) >= 1
                await provider.up()
                await asyncio.to_thread(broker.wait_ready)
                assert (await client.get("/v1/tasks", headers=bearer(token))).status_code == 200
                document = (await client.get("/.well-known/oauth-protected-resource")).json()
                assert document["authorization_servers"] == [provider.issuer]
                dev = await client.get("/v1/agents", headers=bearer(mint("a", scope="agents:read")))
                assert dev.status_code == 401, "dev tokens are nothing here"
        finally:
            broker.close()
            print(broker.output())


async def _reasons(client: httpx.AsyncClient) -> list[str]:
    """/readyz's reasons once the process answers and has asked the issuer."""
    async with asyncio.timeout(30):
        while True:
            try:
                reasons = (await client.get("/readyz")).json()["reasons"]
            except httpx.TransportError:
                reasons = []
            if any("no keys yet" in reason for reason in reasons) and len(reasons) == 1:
                return reasons
            await asyncio.sleep(0.05)
