"""Options that both command lines have."""

import argparse

from service.protocol.options import Mode

DEFAULT_URL = "http://127.0.0.1:8000"


def add_service_options(
    parser: argparse.ArgumentParser, lookahead_help: str, mode_help: str
) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    parser.add_argument("--lookahead-ms", type=float, metavar="MS", help=lookahead_help)
    parser.add_argument("--block-frames", type=int, metavar="N", help="frames emitted together")
    parser.add_argument("--mode", choices=list(Mode), metavar="MODE", help=mode_help)
    parser.add_argument("--model", help="name of the weights")
