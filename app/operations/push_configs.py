"""Push notification configs of a task (A2A v1.0 §3.1.7 to §3.1.10), and the one that a message may bring (§3.2.2).

A config is its tenant's: whoever may see the task sees it, but never again its token and credentials. What is sent to
it is the business of ``app.webhooks``.
"""

import re
from typing import Final, assert_never
from uuid import UUID, uuid4

from app.auth.caller import CallContext
from app.errors import InvalidParams, PermissionDenied, TaskNotFound
from app.ledger import push_configs
from app.ledger.push_configs import MAX_PER_TASK, NewPushConfig, PushConfig, PushConfigSet, PushSecret, TooManyConfigs
from app.ledger.rows import JsonObject, TaskMissing
from app.net.egress import EgressRefused
from app.net.targets import parse
from app.operations.agent_card import require_push
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer, head_of_agent
from app.operations.deps import Operations
from app.operations.paging import PageTokens
from app.protocol.models import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
    dump,
)

SCOPE: Final = "push:write"
DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 100
INLINE: Final = "configuration.taskPushNotificationConfig"
MAX_SECRET_CHARACTERS: Final = 4096

# All of them become header fields (RFC 9110 §5.5, §5.6.2): the id is a part of webhook-id, and of a path.
_ID: Final = re.compile(r"[!-.0-~]{1,256}")
_SCHEME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_FIELD_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")


async def create_push_config(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: TaskPushNotificationConfig
) -> Answer:
    """The config with its id, and this once with its secrets; one with the same id is replaced.

    Raises PushNotificationNotSupported, TaskNotFound, InvalidParams (a URL that may not be called among it),
    TooManyRequests (URLs being looked up), Unavailable.
    """
    require_push(door.agent)
    if not request.task_id:
        raise _invalid("taskId", "is required")
    task_id = await _task_of_agent(ops, ctx, door, request.task_id)
    config = await checked(ops, ctx.caller.tenant, request)
    outcome = await push_configs.create(
        ops.db,
        tenant=ctx.caller.tenant,
        subject=ctx.caller.subject,
        agent_id=door.agent_id,
        task_id=task_id,
        config=config,
    )
    match outcome:
        case PushConfigSet():
            given = {name: value for name, value in dump(request).items() if name != "tenant"}
            return Answer({**given, "id": config.config_id})
        case TaskMissing():
            raise TaskNotFound
        case TooManyConfigs():
            raise too_many()
        case _:
            assert_never(outcome)


async def get_push_config(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: GetTaskPushNotificationConfigRequest
) -> Answer:
    """Raises PushNotificationNotSupported, TaskNotFound for an unknown task and an unknown config, Unavailable."""
    require_push(door.agent)
    task_id = await _task_of_agent(ops, ctx, door, request.task_id)
    config = await push_configs.get(ops.db, ctx.caller.tenant, task_id, request.id)
    if config is None:
        raise TaskNotFound
    return Answer(_shown(task_id, config))


async def list_push_configs(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: ListTaskPushNotificationConfigsRequest
) -> Answer:
    """A page in the order of the ids. Raises PushNotificationNotSupported, TaskNotFound, InvalidParams, Unavailable."""
    require_push(door.agent)
    if not 0 <= request.page_size <= MAX_PAGE_SIZE:
        raise _invalid("pageSize", f"must be between 1 and {MAX_PAGE_SIZE}")
    size = request.page_size or DEFAULT_PAGE_SIZE
    task_id = await _task_of_agent(ops, ctx, door, request.task_id)
    tokens = PageTokens(ops.handles, "push_configs", [ctx.caller.tenant, str(task_id)], InvalidParams)
    after = tokens.after(request.page_token) or ""
    found = await push_configs.list_configs(ops.db, ctx.caller.tenant, task_id, after=after, limit=size + 1)
    page = found[:size]
    more = len(found) > size
    return Answer(
        {
            "configs": [_shown(task_id, config) for config in page],
            "nextPageToken": tokens.next(page[-1].config_id) if more else "",
        }
    )


async def delete_push_config(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: DeleteTaskPushNotificationConfigRequest
) -> Answer:
    """The config and what was still to be sent to it are gone; a second time too (§3.1.10).

    Raises PushNotificationNotSupported, TaskNotFound for an unknown task, Unavailable.
    """
    require_push(door.agent)
    task_id = await _task_of_agent(ops, ctx, door, request.task_id)
    await push_configs.delete(ops.db, ctx.caller.tenant, task_id, request.id)
    return Answer({})


async def inline_config(
    ops: Operations, ctx: CallContext, door: AgentDoor, request: TaskPushNotificationConfig | None
) -> NewPushConfig | None:
    """The config that a message brings, to be stored with it; its taskId is the message's business. Raises
    PermissionDenied, PushNotificationNotSupported, InvalidParams."""
    if request is None:
        return None
    if SCOPE not in ctx.caller.scopes:
        text = f"The token needs the scope {SCOPE}: the message brings a push notification config"
        raise PermissionDenied(text, metadata={"scope": SCOPE})
    require_push(door.agent)
    return await checked(ops, ctx.caller.tenant, request, at=f"{INLINE}.")


async def checked(ops: Operations, tenant: str, request: TaskPushNotificationConfig, *, at: str = "") -> NewPushConfig:
    """The config as the ledger keeps it, with an id. Raises InvalidParams for what may not be sent or called, and
    TooManyRequests; ``at`` is the path of the config in the request.
    """
    scheme, credentials = None, ""
    if request.authentication is not None:
        scheme, credentials = request.authentication.scheme, request.authentication.credentials
        if not _SCHEME.fullmatch(scheme):
            raise _invalid(f"{at}authentication.scheme", "must be the name of an HTTP authentication scheme")
        _check_secret(f"{at}authentication.credentials", credentials)
    _check_secret(f"{at}token", request.token)
    config_id = request.id or str(uuid4())
    if not _ID.fullmatch(config_id):
        raise _invalid(f"{at}id", "must have visible ASCII characters only, and no /")
    try:
        with ops.lookups.taken(tenant):
            await ops.egress.vet(request.url)
    except EgressRefused as refusal:
        raise _invalid(f"{at}url", str(refusal)) from None
    secret = PushSecret(request.token, credentials).seal(ops.vault, tenant=tenant, config_id=config_id, url=request.url)
    return NewPushConfig(config_id, request.url, scheme, secret, _destination(request.url))


def too_many() -> InvalidParams:
    return InvalidParams(f"The task has {MAX_PER_TASK} push notification configs already")


def _check_secret(field: str, value: str) -> None:
    if len(value) > MAX_SECRET_CHARACTERS:
        raise _invalid(field, f"must have at most {MAX_SECRET_CHARACTERS} characters")
    if not _FIELD_VALUE.fullmatch(value):
        raise _invalid(field, "must have visible ASCII characters and spaces between them only")


def _destination(url: str) -> str:
    """Whom a request to ``url`` goes to, however it is written."""
    target = parse(url)
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}"


async def _task_of_agent(ops: Operations, ctx: CallContext, door: AgentDoor, text: str) -> UUID:
    return (await head_of_agent(ops, ctx.caller.tenant, door.agent_id, text)).task_id


def _shown(task_id: UUID, config: PushConfig) -> JsonObject:
    shown: JsonObject = {"id": config.config_id, "taskId": str(task_id), "url": config.url}
    return shown | {"authentication": {"scheme": config.scheme}} if config.scheme else shown


def _invalid(field: str, text: str) -> InvalidParams:
    return InvalidParams(f"{field}: {text}", violations=[(field, text)])
