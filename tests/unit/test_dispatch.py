"""Routes found by their place (transports/dispatch.py) are those that Starlette's router finds by trying them all."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from app.transports.dispatch import Dispatcher

PATHS = [
    "/", "/rpc", "/tasks", "/a2a/{tenant}/tasks", "/agents/{agent}/rpc", "/agents/{agent}/rpc/",
    "/agents/{agent}/tasks", "/agents/{agent}/tasks/{id}:cancel", "/agents/{agent}/tasks/{id}",
    "/agents/{agent}/{tenant}/tasks",
    "/v1/lanes/{tenant}/{key:path}", "/v1/lanes/{tenant}", "/{odd}/one",
]  # fmt: skip
ASKED = [
    "/", "/rpc", "/rpc/", "//", "/tasks", "/agents", "/agents/", "/agents/x/rpc", "/agents/x/rpc/", "/agents//rpc",
    "/agents/x/tasks/1", "/agents/x/tasks/1:cancel", "/agents/x/tasks/1:cancel/", "/agents/x%2Fy/rpc",
    "/agents/x/y/tasks", "/v1/lanes/t", "/v1/lanes/t/k", "/v1/lanes/t/k/l/m",
    "/v1/lanes/t/", "/any/one", "/a2a/x/tasks", "/nowhere/at/all",
]  # fmt: skip


def application(*, dispatched: bool) -> Starlette:
    def route(path: str) -> Route:
        async def show(request: Request) -> PlainTextResponse:
            return PlainTextResponse(f"{path} {sorted(request.path_params.items())}")

        return Route(path, show)

    app = Starlette(routes=[route(path) for path in PATHS])
    app.router.redirect_slashes = False
    app.router.default = PlainTextResponse("unknown", 404)
    app.middleware_stack = Dispatcher(app.router) if dispatched else app.router
    return app


async def get(app: Starlette, path: str) -> tuple[int, str]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get(f"http://test{path}")
    return answer.status_code, answer.text


@pytest.mark.parametrize("path", ASKED)
async def test_the_same_route_is_found(path: str) -> None:
    ours, theirs = application(dispatched=True), application(dispatched=False)
    assert await get(ours, path) == await get(theirs, path)


async def test_routes_may_be_added_later() -> None:
    async def late(_: Request) -> PlainTextResponse:
        return PlainTextResponse("here")

    app = application(dispatched=True)
    assert (await get(app, "/late"))[0] == 404
    app.router.routes.append(Route("/late", late))
    assert await get(app, "/late") == (200, "here")
