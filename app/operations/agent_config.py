"""The body of ``PUT /v1/agents/{agent}``: every field with its default and its limits (native-api.md, Agents).

``parse_config`` is called by ``operations.agents``; the model is also the endpoint's OpenAPI schema.
"""

import re
from typing import Annotated, Final, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

from app.errors import InvalidArgument, NotSupported
from app.ledger.inputs import TaskSettings
from app.ledger.rows import Agent, JsonObject
from app.protocol import strict_json
from app.protocol.models import RegisteredCard, dump, parse

AGENT_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
RESERVED_IDS: Final = frozenset({"v1", "tasks", "extendedagentcard", "card", "rpc", "a2a", "default"})
"""Path segments of the doors at the root (a2a-server.md, Routing key)."""
TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
EVERYBODY: Final = "*"

_DAY = 86400.0
_MAX_SHARED_WITH = 1000
MAX_CARD_BYTES: Final = 256 * 1024
_NOT_BUILT: Final = ("remote", "retentionDays")


def _tenant_or_everybody(value: str) -> str:
    if value != EVERYBODY and not TENANT.fullmatch(value):
        raise ValueError("must be a tenant or *")
    return value


def _bounded(card: RegisteredCard) -> RegisteredCard:
    size = len(strict_json.dumps(dump(card)).encode())
    if size > MAX_CARD_BYTES:
        raise ValueError(f"must have at most {MAX_CARD_BYTES} bytes, has {size}")
    return card


def plain_number(value: float) -> float | int:
    return int(value) if value == int(value) else value


Count = Annotated[int, Field(le=2**31 - 1, strict=True)]
"""What fits into a column; whoever uses it says from where on."""
_Seconds = Annotated[float, Field(ge=0, le=_DAY, strict=True), PlainSerializer(plain_number)]
_Card = Annotated[RegisteredCard, AfterValidator(_bounded)]
_Limit = Annotated[float, Field(gt=0, le=365 * _DAY, strict=True), PlainSerializer(plain_number)]


class _Config(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class Retry(_Config):
    """Attempts per turn, and the bounds of the full-jitter backoff between them."""

    max_attempts: Annotated[int, Field(ge=1, le=1000, strict=True)] = 3
    backoff_seconds: _Seconds = 2
    max_backoff_seconds: _Seconds = 300


class AgentConfig(_Config):
    """An agent's settings. Durations in seconds."""

    mode: Literal["pull"] = "pull"
    card: _Card
    extended_card: _Card | None = None
    card_visibility: Literal["public", "token"] | None = None
    visibility: Literal["private", "shared"] = "private"
    shared_with: Annotated[
        list[Annotated[str, AfterValidator(_tenant_or_everybody)]], Field(max_length=_MAX_SHARED_WITH)
    ] = []
    reply: Literal["task", "message"] = "task"
    idempotency: Literal["message_id", "key_only"] = "message_id"
    on_busy: Literal["enqueue", "reject"] = "enqueue"
    lease_seconds: Annotated[_Seconds, Field(ge=1)] = 30
    cancel_grace_seconds: _Seconds = 3
    retry: Retry = Retry()
    deadline_seconds: _Limit | None = None
    queue_timeout_seconds: _Limit | None = None
    max_concurrency: Annotated[Count, Field(ge=1)] | None = None
    max_concurrency_per_tenant: Annotated[Count, Field(ge=1)] | None = None
    allow_unresolved_effects: Literal[False] = False

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.visibility == "shared" and not self.shared_with:
            raise ValueError('sharedWith is required with visibility "shared": tenants, or *')
        if self.card_visibility is None:
            self.card_visibility = "public" if self.visibility == "shared" else "token"
        return self


def parse_config(body: object) -> AgentConfig:
    """A request body as settings.

    Raises NotSupported for what is not built yet and InvalidArgument, with field violations, for what is wrong.
    """
    if not isinstance(body, dict):
        raise InvalidArgument("The body must be an object", violations=[("", "must be an object")])
    given = {name: value for name, value in cast("JsonObject", body).items() if value is not None}
    _refuse_what_is_not_built(given)
    return parse(AgentConfig, given, error=InvalidArgument)


def stored(config: AgentConfig) -> JsonObject:
    """The settings as they are stored and shown: all defaults filled in, what is unset left out."""
    shown = config.model_dump(by_alias=True, exclude={"card", "extended_card"}, exclude_none=True)
    shown["card"] = dump(config.card)
    if config.extended_card is not None:
        shown["extendedCard"] = dump(config.extended_card)
    return shown


def shared_with(config: AgentConfig) -> frozenset[str]:
    """The tenants that may send to the agent besides its own."""
    return frozenset(config.shared_with) if config.visibility == "shared" else frozenset()


def is_visible(agent: Agent, tenant: str) -> bool:
    """Whether ``tenant`` may see the agent and send to it: its own, or shared with it, and not deleted."""
    return not agent.deleted and (agent.tenant == tenant or not agent.shared_with.isdisjoint((EVERYBODY, tenant)))


def task_settings(agent: Agent) -> TaskSettings:
    """The settings that a task submitted now lives under, whatever becomes of the agent."""
    config = agent.config
    return TaskSettings(
        max_attempts=config["retry"]["maxAttempts"],
        backoff_seconds=config["retry"]["backoffSeconds"],
        max_backoff_seconds=config["retry"]["maxBackoffSeconds"],
        lease_seconds=config["leaseSeconds"],
        cancel_grace_seconds=config["cancelGraceSeconds"],
        on_busy=config["onBusy"],
        deadline_seconds=config.get("deadlineSeconds"),
        queue_timeout_seconds=config.get("queueTimeoutSeconds"),
    )


def _refuse_what_is_not_built(given: JsonObject) -> None:
    refused = [name for name in _NOT_BUILT if name in given]
    refused += [
        f"{name}={value}" for name, value in (("mode", "push"), ("onBusy", "interrupt")) if given.get(name) == value
    ]
    if given.get("allowUnresolvedEffects") is True:
        refused.append("allowUnresolvedEffects=true")
    if refused:
        raise NotSupported(
            f"Not supported: {', '.join(refused)}",
            violations=[(name.partition("=")[0], "not supported") for name in refused],
        )
