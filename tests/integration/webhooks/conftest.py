"""Tasks with webhooks in a real ledger, a receiver, and a sender in the test's own process: fast, and to be stopped."""

import base64
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest_asyncio

from app.auth.vault import Vault
from app.ledger import deliveries, push_configs, webhook_secrets
from app.ledger.deliveries import DeliveryState
from app.ledger.push_configs import NewPushConfig, PushConfigSet, PushSecret
from app.ledger.wakeups import Wakeups
from app.net.egress import Egress, EgressPolicy
from app.protocol.states import TaskState
from app.webhooks.notify import Notifier
from app.webhooks.sender import Sender
from tests.support.ledger import Bench, chunk, open_bench, status, until
from tests.support.receiver import Receiver, receiver

LOOPBACK = EgressPolicy(allow_cidrs=(ipaddress.ip_network("127.0.0.0/8"),))
ATTEMPTS = 3


def soon(attempt: int, *, age_seconds: float, retry_after: float | None = None) -> float | None:
    """A schedule for tests: three attempts, at once."""
    return 0.02 if attempt < ATTEMPTS else None


@dataclass
class Post:
    """One tenant's tasks and their webhooks."""

    bench: Bench
    wakeups: Wakeups
    vault: Vault
    stack: AsyncExitStack
    timeout_seconds: float = 5

    def of_tenant(self, tenant: str) -> "Post":
        """The same for another tenant."""
        return replace(self, bench=replace(self.bench, tenant=tenant))

    async def task(
        self, *urls: str, chunks: int = 0, token: str = "", scheme: str | None = None, credentials: str = ""
    ) -> UUID:
        """A task that hears at these URLs of everything after its submit: WORKING, so many chunks, COMPLETED."""
        sent = await self.bench.submit()
        for url in urls:
            config_id = uuid4().hex
            secret = PushSecret(token, credentials).seal(
                self.vault, tenant=self.bench.tenant, config_id=config_id, url=url
            )
            destination = url[: url.index("/", 8)]
            await self.configure(sent.task_id, NewPushConfig(config_id, url, scheme, secret, destination))
        await self.work(chunks)
        return sent.task_id

    async def configure(self, task_id: UUID, config: NewPushConfig) -> None:
        made = await push_configs.create(
            self.bench.db, tenant=self.bench.tenant, subject=self.bench.subject, agent_id=self.bench.agent,
            task_id=task_id, config=config,
        )  # fmt: skip
        assert made == PushConfigSet()

    async def work(self, chunks: int) -> None:
        lease = await self.bench.claim_one()
        for number in range(chunks):
            await self.bench.append(lease, chunk(f"{number} ü\u2028", append=number > 0))
        await self.bench.append(lease, status(TaskState.COMPLETED, text="done"))

    def sender(
        self,
        *,
        egress: Egress | None = None,
        vault: Vault | None = None,
        hold_seconds: float = 10,
        pause: Callable[..., float | None] = soon,
    ) -> Sender:
        """One that is not started: by ``start`` it runs as in a replica."""
        if egress is None:
            egress = Egress(LOOPBACK)
        self.stack.push_async_callback(egress.aclose)
        notifier = Notifier(self.bench.db, egress, vault or self.vault, timeout_seconds=self.timeout_seconds)
        one = Sender(self.bench.db, self.wakeups, notifier, poll_seconds=0.05, hold_seconds=hold_seconds, pause=pause)
        self.stack.push_async_callback(one.stop)
        return one

    async def rows(self, task_id: UUID | None = None, state: str | None = None) -> list[DeliveryState]:
        return await deliveries.list_deliveries(
            self.bench.db, self.bench.tenant, task_id=task_id, state=state, limit=1000
        )

    async def ended(self, task_id: UUID) -> list[DeliveryState]:
        """The task's deliveries, in order, when none is pending any more."""

        async def none_pending() -> bool:
            return not await self.rows(task_id, "pending")

        await until(none_pending)
        return sorted(await self.rows(task_id), key=lambda row: (row.key.config_id, row.key.seq))

    async def secrets(self) -> list[str]:
        """As their tenant is shown them, the newest first."""
        live = await webhook_secrets.live(self.bench.db, self.vault, self.bench.tenant)
        return [f"whsec_{base64.b64encode(secret.key).decode()}" for secret in live]


@pytest_asyncio.fixture
async def post(database_url: str) -> AsyncIterator[Post]:
    wakeups = Wakeups(database_url)
    async with AsyncExitStack() as stack:
        bench = await stack.enter_async_context(open_bench(database_url))
        await wakeups.start()
        stack.push_async_callback(wakeups.stop)
        yield Post(bench, wakeups, Vault([b"k" * 32]), stack)


@pytest_asyncio.fixture
async def hooks() -> AsyncIterator[Receiver]:
    async with receiver() as one:
        yield one


@pytest_asyncio.fixture
async def other_hooks() -> AsyncIterator[Receiver]:
    """Another receiver: another destination."""
    async with receiver() as one:
        yield one
