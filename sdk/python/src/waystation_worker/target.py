"""``load``: a worker for whatever a name points at. Used by ``waystation worker run module:target``."""

import importlib
import inspect
import os
import sys
from typing import Any

from waystation_worker.broker import Token
from waystation_worker.worker import Worker


def load(
    target: Any,
    *,
    agent: str | None = None,
    url: str | None = None,
    token: Token | None = None,
    concurrency: int | None = None,
) -> Worker:
    """A worker, ready to run, for ``target``: ``"module:attribute"``, or the object itself.

    That is a Worker (which keeps its agents and takes the url and token given here), an a2a-sdk AgentExecutor or a
    class of one, or an async handler function; the latter two need ``agent``. Modules are found in the working
    directory too.
    Raises ValueError for what is none of these, ImportError or AttributeError for a name that does not exist.
    """
    if isinstance(target, str):
        target = _named(target)
    if isinstance(target, Worker):
        target.url = url or target.url
        target.token = token or target.token
        return target
    if not agent:
        raise ValueError("name the agent that this handler or executor works for")
    worker = Worker(url, token, concurrency=concurrency or 8)
    if inspect.isclass(target):
        target = target()
    if _is_async_callable(target):
        worker.agent(agent)(target)
    elif hasattr(target, "execute") and hasattr(target, "cancel"):
        worker.add_executor(agent, target)
    else:
        raise ValueError(f"{target!r} is not a Worker, an AgentExecutor or an async function")
    return worker


def _is_async_callable(target: Any) -> bool:
    return inspect.iscoroutinefunction(target) or (
        callable(target) and inspect.iscoroutinefunction(type(target).__call__)
    )


def _named(name: str) -> Any:
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"{name!r} is not of the form module:attribute")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = importlib.import_module(module_name)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found
