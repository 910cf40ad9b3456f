"""The command line's option that says which instruments play."""

from __future__ import annotations

import argparse


def add_instruments_option(parser: argparse.ArgumentParser) -> None:
    """``--instruments violin,cello``; the service says which names there are."""
    parser.add_argument(
        "--instruments",
        type=_names,
        metavar="NAME,NAME",
        help="only these are considered, such as violin,cello (default: all)",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
