"""Checks of a configuration's fields; the ValueError names the field, its range and its value.

Not pydantic's dataclasses: their errors take several lines and do not state the range.
"""

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints


def check_choices(config: object) -> None:
    """Fields that take one of a few words, and booleans."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            words = ", ".join(map(repr, get_args(kind)))
            raise ValueError(f"{name} must be one of {words}, not {value!r}")
        if kind is bool and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")


def check_whole(config: object, low: int, *names: str, high: int | None = None) -> None:
    """Fields that are whole numbers from ``low`` to ``high``, inclusive."""
    for name in names:
        value = getattr(config, name)
        within = is_whole(value) and low <= value and (high is None or value <= high)
        if not within:
            bounds = f"from {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"{name} must be a whole number {bounds}, not {value!r}")


def check_number(config: object, name: str, holds: Callable[[float], bool], must: str) -> None:
    """A field that is a finite number for which ``holds`` is true; ``must`` says it in words."""
    value = getattr(config, name)
    if not is_number(value) or not holds(value):
        raise ValueError(f"{name} must be a number {must}, not {value!r}")


def check_each(config: object, name: str, holds: Callable[[Any], bool], must: str) -> None:
    """A field that is a non-empty tuple; ``holds`` is true for each item."""
    values = getattr(config, name)
    if not isinstance(values, tuple) or not values or not all(holds(value) for value in values):
        raise ValueError(f"{name} must be {must}, at least one, not {values!r}")


def is_whole(value: object) -> bool:
    """Whether it is an integer of any type other than bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a finite number of any type other than bool."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
