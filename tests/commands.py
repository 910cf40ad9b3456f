"""Runs commands in the process of a test."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple


class Outcome(NamedTuple):
    """Exit status, standard output and standard error of a command."""

    status: object
    output: str
    error: str


def run(main: Callable[[list[str]], int], *arguments: object) -> Outcome:
    """Run a command. Its arguments may be paths and numbers."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2)
    )
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status: object = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
    for stream in (out, err):
        stream.seek(0)
    return Outcome(status, out.read(), err.read())
