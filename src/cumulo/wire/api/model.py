"""What all shapes of the API have in common, and the shape of a failure."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cumulo.wire.level import unknown_key

Decimal = Annotated[str, Field(pattern=r"^\d+\.\d{2,9}$", description="USD as a decimal number")]


class Model(BaseModel):
    """Everything that travels: unknown keys are an error on both sides."""

    model_config = ConfigDict(extra="forbid")


class Body(Model):
    """What comes in: a number is a number, and `true` is none."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NamingBody(Body):
    """What comes in under names of which some may be misspelt: an unknown one is told with what may have been meant."""

    @model_validator(mode="before")
    @classmethod
    def known(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if name not in cls.model_fields:
                raise unknown_key(name, known=tuple(cls.model_fields))
        return data


class Problem(Model):
    """A failure (RFC 9457). `code` is stable and is what programs should look at."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    details: dict[str, Any]
