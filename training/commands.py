"""What the command lines of training have in common."""

import argparse
from pathlib import Path

CACHE = Path("~/.cache/rse-transcribe").expanduser()


def add_material(parser: argparse.ArgumentParser) -> None:
    """Where the material of rendered audio is, and its cache."""
    parser.add_argument("--synth", type=Path, default=Path("data/synth"), help="training data")
    parser.add_argument("--cache", type=Path, default=CACHE, help="its cache")
