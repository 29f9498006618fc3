"""What docs/grpc.md tells a client to do is done here, as it stands there."""

import re
from typing import Any

from a2a.types import ListTasksRequest

from tests.contract.doors import say
from tests.integration.grpc.conftest import At
from tests.support.broker import ROOT
from tests.support.tokens import mint


async def test_the_documented_client_works(at: At) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/grpc.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    await at.rest().send(say("go"), now=True)
    client = await names["grpc_client"](f"{at.broker.base_url}/agents/{at.agent}", mint("a"))
    try:
        listed = await client.list_tasks(ListTasksRequest())
    finally:
        await client.close()
    assert listed.total_size == 1
