"""What one tenant may do at a time, and that its webhook URLs are looked up within it."""

import asyncio
from typing import Any, cast

import pytest

from app.auth.vault import Vault
from app.errors import TooManyRequests
from app.net.egress import Egress
from app.net.policy import EgressPolicy
from app.operations import push_configs
from app.operations.deps import LOOKUPS_PER_TENANT, Operations
from app.operations.tenant_limit import TenantLimit
from app.protocol.models import TaskPushNotificationConfig, parse


def test_each_tenant_has_its_own_places() -> None:
    limit = TenantLimit(2, "too many")
    with (
        limit.taken("a"),
        limit.taken("a"),
        limit.taken("b"),
        pytest.raises(TooManyRequests, match="too many"),
        limit.taken("a"),
    ):
        pass
    with pytest.raises(ZeroDivisionError), limit.taken("a"):
        _ = 1 / 0
    with limit.taken("a"), limit.taken("a"):
        pass


async def test_slow_names_of_one_tenant_leave_places_to_others() -> None:
    asked: list[str] = []
    slow = asyncio.Event()

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        if host == "slow.example":
            await slow.wait()
        return ["93.184.215.14"]

    none = cast("Any", None)
    egress = Egress(EgressPolicy(), resolve=resolve)
    ops = Operations(none, none, none, none, none, egress=egress, vault=Vault([b"k" * 32]))

    def config(host: str) -> TaskPushNotificationConfig:
        return parse(TaskPushNotificationConfig, {"url": f"https://{host}/"})

    waiting = [
        asyncio.ensure_future(push_configs.checked(ops, "a", config("slow.example"))) for _ in range(LOOKUPS_PER_TENANT)
    ]
    while len(asked) < LOOKUPS_PER_TENANT:
        await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await push_configs.checked(ops, "a", config("quick.example"))
    assert (await push_configs.checked(ops, "b", config("quick.example"))).url == "https://quick.example/"
    slow.set()
    await asyncio.gather(*waiting)
    assert (await push_configs.checked(ops, "a", config("quick.example"))).url == "https://quick.example/"
    await egress.aclose()
