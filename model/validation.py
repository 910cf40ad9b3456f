"""Validated dataclasses (pydantic) with one-line error messages."""

import reprlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

# Strict: a string or a Boolean in place of a number is an error.
Count = Annotated[int, Field(ge=1, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NonNegative = Annotated[float, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_Kind = TypeVar("_Kind", bound=type)


@dataclass_transform(frozen_default=True)
def validated_dataclass(**options: Any) -> Callable[[_Kind], _Kind]:
    """Return a decorator that makes a frozen dataclass whose constructor validates its fields. The
    constructor raises a ValueError with the first invalid field, its value and the constraint.
    options: further arguments of ``dataclasses.dataclass``."""

    def decorate(kind: _Kind) -> _Kind:
        validated: Any = dataclass(kind, frozen=True, config=_CONFIG, **options)
        validate = validated.__init__

        @wraps(validate)
        def init(self: object, *args: object, **fields: object) -> None:
            try:
                validate(self, *args, **fields)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                name = ".".join(map(str, first["loc"]))
                raise ValueError(format_error(first, name)) from None

        validated.__init__ = init
        return validated

    return decorate


def format_error(error: Mapping[str, Any], name: str | None = None) -> str:
    """Return a one-line message for a pydantic error.

    The message contains the invalid value if the error states a constraint and has an ``input``.
    A validator's message is returned unchanged if it starts with the field's name, or if ``name``
    is None.

    Args:
        error: one of ``ValidationError.errors()``.
        name: field name to use in the message. None means the path in the error.
    """
    kind, message = error["type"], str(error["msg"])
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        is_complete = not name or message.startswith(name.partition(".")[0])
        return message if is_complete else f"{name}: {message}"
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
    _, should, constraint = message.partition(" should ")
    if not should:
        return f"{name}: {message}" if name else message
    constraint = constraint.partition(", unable ")[0]
    if "input" in error:
        constraint = f"{constraint.partition(', not ')[0]}, not {reprlib.repr(error['input'])}"
    return f"{name or 'the message'} must {constraint}"
