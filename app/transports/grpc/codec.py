"""Between A2A's protobuf messages and the JSON that the operations take and give. Called by ``grpc.service``.

The official generated types decide what is on the wire; what is in the messages is judged by the same models as on the
JSON doors. protobuf itself refuses text that is not UTF-8 and messages nested more than 100 deep.
"""

from typing import Any, Final, cast

from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from app.errors import ParseError, UnsupportedOperation

JsonObject = dict[str, Any]

A2A_SERVICE: Final = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
_EXACT = 2**53


class Codec:
    """The request and the answer of one method."""

    def __init__(self, method: str) -> None:
        descriptor = A2A_SERVICE.methods_by_name[method]
        self._request = GetMessageClass(descriptor.input_type)
        self._answer = GetMessageClass(descriptor.output_type)

    def decode(self, raw: bytes) -> JsonObject:
        """The request as ProtoJSON values. Raises ParseError for what is no such message, and for U+0000, NaN and
        infinities, as the strict JSON loader does."""
        try:
            fields: JsonObject = json_format.MessageToDict(self._request.FromString(raw))
        except DecodeError:
            text = f"Invalid protobuf: not a {self._request.DESCRIPTOR.name} in UTF-8, or nested too deep"
            raise ParseError(text) from None
        except (json_format.Error, ValueError):  # NaN, infinities, and times that are none
            raise ParseError("Invalid protobuf: a number or a timestamp without a JSON form") from None
        return _strict(fields)

    def encode(self, body: JsonObject) -> bytes:
        """The answer, or one item of a stream, as it goes out. Raises UnsupportedOperation for content that is nested
        deeper than protobuf carries."""
        try:
            return json_format.ParseDict(body, self._answer(), ignore_unknown_fields=True).SerializeToString()
        except json_format.ParseError:
            text = "This content is nested deeper than gRPC carries; read it over JSON-RPC or HTTP+JSON"
            raise UnsupportedOperation(text) from None


def _strict(value: Any) -> Any:
    """The same value without U+0000. protobuf's numbers are doubles: whole ones are written without a fraction."""
    if isinstance(value, str):
        if "\x00" in value:
            raise ParseError("Invalid protobuf: U+0000 is not allowed in strings")
        return value
    if isinstance(value, dict):
        return {_strict(key): _strict(item) for key, item in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [_strict(item) for item in cast("list[object]", value)]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
