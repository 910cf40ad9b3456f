"""What the command lines of the model and of training have in common."""

import argparse


def documented_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows a module's docstring as it stands."""
    return argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
