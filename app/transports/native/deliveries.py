"""The webhook routes of ``/v1``: deliveries, their secrets, and the test call (native-api.md, Operators).

Mounted by ``app.main``. Scope ``push:write``: whoever may register webhooks looks after them.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.errors import InvalidArgument, NotFound
from app.operations import deliveries
from app.operations.answers import parse_task_id
from app.protocol import strict_json
from app.protocol.models import parse
from app.protocol.models.scalars import OptionalId, PageSize, Text
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint
from app.webhooks.trial import Trials

SCOPE = ("push:write",)
DEFAULT_PAGE_SIZE = 50


class DeliveriesQuery(BaseModel):
    """The query of ``GET /v1/deliveries``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    state: Literal["", "pending", "delivered", "dead"] = ""
    task_id: OptionalId = ""
    page_size: PageSize = None
    page_token: Annotated[Text, Field(max_length=4096)] = ""


class DeliveryRoutes:
    """The handlers, bound to this process's test calls."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                "GET", "/v1/deliveries", SCOPE, self.list, "listDeliveries", "The tenant's push notifications",
                tags=("webhooks",),
                query={
                    "state": "pending, delivered or dead", "taskId": "",
                    "pageSize": "1..100, default 50", "pageToken": "nextPageToken of the page before",
                },
                response={"type": "object"},
            ),
            Endpoint(
                "POST", "/v1/deliveries/{id}:redeliver", SCOPE, self.redeliver, "redeliver",
                "Send a delivered or dead one once more", tags=("webhooks",), response={"type": "object"},
            ),
            Endpoint(
                "POST", "/v1/tasks/{id}/pushNotificationConfigs/{config}:test", SCOPE, self.test, "testWebhook",
                "Send one signed notification now", tags=("webhooks",), response={"type": "object"},
            ),
            Endpoint(
                "GET", "/v1/webhooks/secrets", SCOPE, self.secrets, "webhookSecrets",
                "What the tenant's notifications are signed with", tags=("webhooks",), response={"type": "object"},
            ),
            Endpoint(
                "POST", "/v1/webhooks/secrets:rotate", SCOPE, self.rotate, "rotateWebhookSecret",
                "A new secret; the old one signs beside it for a day", tags=("webhooks",), response={"type": "object"},
            ),
        )  # fmt: skip

    async def list(self, call: Call) -> Response:
        query = parse(DeliveriesQuery, call.query(), error=InvalidArgument)
        page = await deliveries.list_deliveries(
            call.gateway.operations,
            call.caller,
            state=query.state or None,
            task_id=query.task_id or None,
            page_size=query.page_size or DEFAULT_PAGE_SIZE,
            page_token=query.page_token,
        )
        return _json(page)

    async def redeliver(self, call: Call) -> Response:
        return _json(await deliveries.redeliver(call.gateway.operations, call.caller, call.path("id")))

    async def test(self, call: Call) -> Response:
        task_id = parse_task_id(call.path("id"))
        if task_id is None:
            raise NotFound
        return _json(await self._trials.run(call.caller.tenant, task_id, call.path("config")))

    async def secrets(self, call: Call) -> Response:
        return _json(await deliveries.read_secrets(call.gateway.operations, call.caller))

    async def rotate(self, call: Call) -> Response:
        return _json(await deliveries.rotate_secrets(call.gateway.operations, call.caller))


def _json(body: object) -> Response:
    return Response(strict_json.dumps(body), headers={"Cache-Control": "no-store"}, media_type="application/json")
