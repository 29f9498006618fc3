"""The agent card (A2A v1.0 §4.4, §4.5) and all of its nested types.

REQUIRED lists must be present but may be empty (a card without skills is a card), and are printed even then.
"""

from typing import Annotated, ClassVar

from app.protocol.models.base import OneofModel, WireModel
from app.protocol.models.scalars import (
    NULL_IS_EMPTY_LIST,
    NULL_IS_EMPTY_MAP,
    Flag,
    OptionalFlag,
    OptionalId,
    RequiredText,
    Struct,
    Text,
    Texts,
)

Scopes = Annotated[dict[str, str], NULL_IS_EMPTY_MAP]


class StringList(WireModel):
    list: Texts = []


class SecurityRequirement(WireModel):
    schemes: Annotated[dict[str, StringList], NULL_IS_EMPTY_MAP] = {}


class APIKeySecurityScheme(WireModel):
    description: Text = ""
    location: RequiredText
    name: RequiredText


class HTTPAuthSecurityScheme(WireModel):
    description: Text = ""
    scheme: RequiredText
    bearer_format: Text = ""


class AuthorizationCodeOAuthFlow(WireModel):
    authorization_url: RequiredText
    token_url: RequiredText
    refresh_url: Text = ""
    scopes: dict[str, str]
    pkce_required: Flag = False


class ClientCredentialsOAuthFlow(WireModel):
    token_url: RequiredText
    refresh_url: Text = ""
    scopes: dict[str, str]


class ImplicitOAuthFlow(WireModel):
    authorization_url: Text = ""
    refresh_url: Text = ""
    scopes: Scopes = {}


class PasswordOAuthFlow(WireModel):
    token_url: Text = ""
    refresh_url: Text = ""
    scopes: Scopes = {}


class DeviceCodeOAuthFlow(WireModel):
    device_authorization_url: RequiredText
    token_url: RequiredText
    refresh_url: Text = ""
    scopes: dict[str, str]


class OAuthFlows(OneofModel):
    ONEOF: ClassVar[tuple[str, ...]] = (
        "authorization_code",
        "client_credentials",
        "implicit",
        "password",
        "device_code",
    )

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(WireModel):
    description: Text = ""
    flows: OAuthFlows
    oauth2_metadata_url: Text = ""


class OpenIdConnectSecurityScheme(WireModel):
    description: Text = ""
    open_id_connect_url: RequiredText


class MutualTlsSecurityScheme(WireModel):
    description: Text = ""


class SecurityScheme(OneofModel):
    ONEOF: ClassVar[tuple[str, ...]] = (
        "api_key_security_scheme",
        "http_auth_security_scheme",
        "oauth2_security_scheme",
        "open_id_connect_security_scheme",
        "mtls_security_scheme",
    )

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentInterface(WireModel):
    url: RequiredText
    protocol_binding: RequiredText
    tenant: OptionalId = ""
    protocol_version: RequiredText


class AgentProvider(WireModel):
    url: RequiredText
    organization: RequiredText


class AgentExtension(WireModel):
    uri: Text = ""
    description: Text = ""
    required: Flag = False
    params: Struct | None = None


class AgentCapabilities(WireModel):
    streaming: OptionalFlag = None
    push_notifications: OptionalFlag = None
    extensions: Annotated[list[AgentExtension], NULL_IS_EMPTY_LIST] = []
    extended_agent_card: OptionalFlag = None


class AgentSkill(WireModel):
    id: RequiredText
    name: RequiredText
    description: RequiredText
    tags: list[str]
    examples: Texts = []
    input_modes: Texts = []
    output_modes: Texts = []
    security_requirements: Annotated[list[SecurityRequirement], NULL_IS_EMPTY_LIST] = []


class AgentCardSignature(WireModel):
    protected: RequiredText
    signature: RequiredText
    header: Struct | None = None


class RegisteredCard(WireModel):
    """What an agent's author registers: a card without interfaces, for which the broker's doors stand in."""

    name: RequiredText
    description: RequiredText
    provider: AgentProvider | None = None
    version: RequiredText
    documentation_url: str | None = None
    capabilities: AgentCapabilities
    security_schemes: Annotated[dict[str, SecurityScheme], NULL_IS_EMPTY_MAP] = {}
    security_requirements: Annotated[list[SecurityRequirement], NULL_IS_EMPTY_LIST] = []
    default_input_modes: list[str]
    default_output_modes: list[str]
    skills: list[AgentSkill]
    signatures: Annotated[list[AgentCardSignature], NULL_IS_EMPTY_LIST] = []
    icon_url: str | None = None


class AgentCard(RegisteredCard):
    supported_interfaces: list[AgentInterface]
