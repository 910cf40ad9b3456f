"""Dataclasses that check their fields: pydantic's, with errors of one line."""

import reprlib
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

# Strict: a misplaced string or truth value in a card is an error, not a number.
Count = Annotated[int, Field(ge=1, strict=True)]
FromZero = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NotNegative = Annotated[float, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_Kind = TypeVar("_Kind", bound=type)


@dataclass_transform(frozen_default=True)
def checked(**options: Any) -> Callable[[_Kind], _Kind]:
    """A frozen dataclass whose fields must be as annotated; `options`: of dataclasses.

    Its ValueError names the first wrong field, what it must be and its value.
    """

    def decorate(kind: _Kind) -> _Kind:
        made: Any = dataclass(kind, frozen=True, config=_CONFIG, **options)
        validate = made.__init__

        @wraps(validate)
        def init(self: object, *args: object, **fields: object) -> None:
            try:
                validate(self, *args, **fields)
            except ValidationError as error:
                raise ValueError(_one_line(error)) from None

        made.__init__ = init
        return made

    return decorate


def _one_line(error: ValidationError) -> str:
    """Its first complaint."""
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    _, should, what = said.partition(" should ")
    if name and should:
        return f"{name} must {what.partition(', not ')[0]}, not {reprlib.repr(first['input'])}"
    return f"{name}: {said}" if name else said
