"""Settings from the environment (prefix ``WAYSTATION_``). Read once by the CLI or by a test, then passed on."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_ISSUER_SCOPES = ("tasks:read", "tasks:write", "tasks:cancel", "push:write", "agents:read")
MIN_SECRET_BYTES = 32


class IssuerSettings(BaseModel):
    """One trusted OIDC issuer. ``tenantRule`` is ``claim:<path>``, ``constant:<tenant>`` or ``map:<claim path>``."""

    model_config = SettingsConfigDict(extra="forbid")

    issuer: str
    audience: str
    tenantRule: str
    tenants: list[str] = Field(min_length=1)
    allowedScopes: list[str] = Field(default_factory=lambda: list(DEFAULT_ISSUER_SCOPES))
    jwksUri: str | None = None
    tenantMap: dict[str, str] = Field(default_factory=dict)
    allowJwtTyp: bool = False


class Settings(BaseSettings):
    """The whole configuration. Durations are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="WAYSTATION_", extra="ignore", populate_by_name=True)

    database_url: str | None = Field(
        default=None, validation_alias=AliasChoices("WAYSTATION_DATABASE_URL", "DATABASE_URL", "database_url")
    )
    direct_database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    public_url: str | None = None
    public_grpc_url: str | None = None
    trusted_proxies: Annotated[list[str], NoDecode] = Field(default_factory=list)
    default_agent: str | None = None
    data_dir: str | None = None
    pool_size: int = Field(default=16, ge=2)
    blocking_wait_seconds: float = Field(default=30, ge=0)
    secret_key: SecretStr | None = None
    max_streams: int = Field(default=2000, ge=1)
    max_streams_per_tenant: int = Field(default=100, ge=1)
    max_streams_per_subject: int = Field(default=20, ge=1)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    auth_mode: Literal["oidc", "dev"] = "oidc"
    issuers: list[IssuerSettings] = Field(default_factory=list)
    dev_secret: SecretStr | None = None
    allow_insecure_dev: bool = False
    heartbeat_seconds: float = Field(default=15, gt=0)
    stream_recycle_seconds: float = Field(default=900, gt=0)
    poll_seconds: float = Field(default=2, gt=0)
    egress_allow_http: bool = False
    egress_allow_cidrs: Annotated[list[str], NoDecode] = Field(default_factory=list)

    @field_validator("trusted_proxies", "egress_allow_cidrs", mode="before")
    @classmethod
    def _comma_list(cls, value: object) -> object:
        return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value

    @field_validator("secret_key", "dev_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        keys = value.get_secret_value().split(",") if value else []
        if any(len(key.encode()) < MIN_SECRET_BYTES for key in keys):
            raise ValueError(f"{info.field_name} must have at least {MIN_SECRET_BYTES} bytes")
        return value

    @model_validator(mode="after")
    def _safe(self) -> "Settings":
        if self.auth_mode == "dev":
            if self.dev_secret is None:
                raise ValueError("WAYSTATION_AUTH_MODE=dev needs WAYSTATION_DEV_SECRET")
            if self.host not in LOOPBACK_HOSTS and not self.allow_insecure_dev:
                raise ValueError("dev mode listens on loopback only (or set WAYSTATION_ALLOW_INSECURE_DEV=1)")
        return self

    def secret_keys(self) -> list[bytes]:
        """The keys that sign cursors and leaseIds: the first signs, all verify. In dev mode derived from DEV_SECRET.

        Raises ValueError when none is configured.
        """
        if self.secret_key is not None:
            return [key.encode() for key in self.secret_key.get_secret_value().split(",")]
        if self.auth_mode == "dev" and self.dev_secret is not None:
            return [b"waystation-secret-key:" + self.dev_secret.get_secret_value().encode()]
        raise ValueError("WAYSTATION_SECRET_KEY is required (at least 32 bytes, the same on all replicas)")
