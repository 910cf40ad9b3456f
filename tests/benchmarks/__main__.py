"""``python -m tests.benchmarks PART [--quick] [--json OUT]``: speed on this machine."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.protocol.options import Mode
from tests.benchmarks import file, gpu, live, machine, streams

Part = Callable[[argparse.Namespace], dict[str, Any]]

PARTS: dict[str, tuple[Part, str]] = {
    "file": (file.run, "an hour-long recording: times real time, peak memory"),
    "streams": (streams.run, "the most concurrent real-time streams"),
    "host": (streams.run_host, "what a stream costs a processor beside the model"),
    "gpu": (gpu.run, "batches and streams on a GPU"),
    "many": (streams.run_many, "the numbers of --streams at once"),
    "bursts": (streams.run_bursts, "8 streams alone, and beside bursts of HTTP requests"),
    "load": (streams.run_load, "the sessions that are admitted, and more"),
    "live": (live.run, "one 48 kHz stream at the pace of a microphone"),
}
ALL = [name for name in PARTS if name not in ("many", "bursts", "load", "live")]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine.describe()}
    failed = False
    for name in ALL if options.part == "all" else [options.part]:
        part, about = PARTS[name]
        print(f"{name}: {about} ...", file=sys.stderr)
        try:
            figures[name] = part(options)
        except Exception as error:  # the other parts are worth having
            traceback.print_exc()
            figures[name], failed = {"failed": repr(error)}, True
        print(json.dumps({name: figures[name]}, indent=1))
        if options.json is not None:  # a long run that is stopped keeps what it has
            options.json.write_text(json.dumps(figures, indent=1))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="\n".join(f"{name:9}{about}" for name, (_, about) in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("part", choices=[*PARTS, "all"], help=f"all: {', '.join(ALL)}")
    add("--quick", action="store_true", help="minutes: shorter and fewer runs")
    add("--audio", type=Path, help="a recording (default: synthetic chords)")
    many = [200, 400, 800]
    add("--streams", type=int, nargs="+", default=many, help="of many (default: 200 400 800)")
    add("--services", type=int, default=1, help="of many: number of services (default: 1)")
    add("--stub", action="store_true", help="of many: a network that costs nothing")
    add("--mode", type=Mode, choices=list(Mode), default=Mode.BLOCK, help="of live")
    add("--lookahead-ms", type=float, default=100.0, help="of live (default: 100)")
    add("--model", default=machine.usual_model(), help=machine.MODEL_HELP)
    add("--json", type=Path, help="write the figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
