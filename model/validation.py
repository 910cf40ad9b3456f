"""Dataclasses that check their fields: pydantic's, with errors of one line."""

import reprlib
from collections.abc import Callable, Mapping
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
def validated_dataclass(**options: Any) -> Callable[[_Kind], _Kind]:
    """A frozen dataclass whose fields must be as annotated; `options`: of dataclasses. Its
    ValueError names the first wrong field, what it must be and its value."""

    def decorate(kind: _Kind) -> _Kind:
        made: Any = dataclass(kind, frozen=True, config=_CONFIG, **options)
        validate = made.__init__

        @wraps(validate)
        def init(self: object, *args: object, **fields: object) -> None:
            try:
                validate(self, *args, **fields)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                name = ".".join(map(str, first["loc"]))
                raise ValueError(format_error(first, name)) from None

        made.__init__ = init
        return made

    return decorate


def format_error(error: Mapping[str, Any], name: str | None = None) -> str:
    """One of pydantic's errors as a sentence about ``name``, by default the path of the field; with
    the field's value if the error has its ``input``. What a validator of ours says follows ``name``
    only if that is given: usually it names the field itself."""
    kind, said = error["type"], str(error["msg"])
    if kind == "value_error":
        said = said.removeprefix("Value error, ")
        return f"{name}: {said}" if name else said
    if name is None:
        name = ".".join(map(str, error["loc"]))
    if kind == "missing":
        return f"{name} is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown field: {name}"
    if kind == "union_tag_not_found":
        return "the message has no type"
    if kind == "union_tag_invalid":
        return f"type must be one of {error['ctx']['expected_tags']}, not {error['ctx']['tag']!r}"
    _, should, what = said.partition(" should ")
    if not should:
        return f"{name}: {said}" if name else said
    what = what.partition(", unable ")[0]
    if "input" in error:
        what = f"{what.partition(', not ')[0]}, not {reprlib.repr(error['input'])}"
    return f"{name or 'the message'} must {what}"
