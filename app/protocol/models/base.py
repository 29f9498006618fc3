"""The base of all wire models: what ProtoJSON says about names, unknown fields, presence and oneofs.

A field without a default is REQUIRED in ``a2a.proto``. A field whose default is empty (``""``, ``False``, ``[]``) has
no presence in proto3: absent, null and the default are one. A field whose default is None has presence.
"""

from enum import Enum, IntEnum
from typing import ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """camelCase out, camelCase or snake_case in; unknown fields are ignored and forgotten (A2A v1.0 §5.5, §5.7)."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")


class OneofModel(WireModel):
    """A message that is one ``oneof``: exactly one of the fields named in ``ONEOF`` is given."""

    ONEOF: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in self.ONEOF) != 1:
            raise ValueError(f"must have exactly one of {', '.join(map(to_camel, self.ONEOF))}")
        return self


class Role(IntEnum):
    """Who wrote a message, with the numbers of ``a2a.proto``."""

    UNSPECIFIED = 0
    USER = 1
    AGENT = 2

    @property
    def wire(self) -> str:
        """The full A2A name, ``ROLE_USER``."""
        return f"ROLE_{self.name}"


class Absent(Enum):
    """Stands for "not given" where null is a value of its own (``Part.data``)."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
