"""Command that measures speed: ``python -m tests.benchmarks PART [--quick] [--json OUT]``."""

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
    "file": (file.run, "an hour-long recording: speed and peak memory"),
    "streams": (streams.run, "maximum number of concurrent streams in real time"),
    "host": (streams.run_host, "processor time of a stream without the model"),
    "gpu": (gpu.run, "batches and streams on a GPU"),
    "many": (streams.run_many, "the numbers of concurrent streams in --streams"),
    "bursts": (streams.run_bursts, "8 streams without and with bursts of HTTP requests"),
    "load": (streams.run_load, "fewer and more sessions than the service admits"),
    "live": (live.run, "one 48 kHz stream at the pace of a microphone"),
}
ALL = [name for name in PARTS if name not in ("many", "bursts", "load", "live")]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine.describe()}
    failed = False
    for name in ALL if options.part == "all" else [options.part]:
        part, description = PARTS[name]
        print(f"{name}: {description} ...", file=sys.stderr)
        try:
            figures[name] = part(options)
        except Exception as error:  # Continue with the other parts.
            traceback.print_exc()
            figures[name], failed = {"failed": repr(error)}, True
        print(json.dumps({name: figures[name]}, indent=1))
        if options.json is not None:  # Write after each part, so that a stopped run loses little.
            options.json.write_text(json.dumps(figures, indent=1))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="\n".join(f"{name:9}{text}" for name, (_, text) in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("part", choices=[*PARTS, "all"], help=f"all: {', '.join(ALL)}")
    add("--quick", action="store_true", help="shorter and fewer runs (minutes)")
    add("--audio", type=Path, help="a recording (default: synthetic chords)")
    counts = [200, 400, 800]
    add("--streams", type=int, nargs="+", default=counts, help="for many (default: 200 400 800)")
    add("--services", type=int, default=1, help="for many: number of services (default: 1)")
    add("--stub", action="store_true", help="for many: a network that needs almost no time")
    add("--mode", type=Mode, choices=list(Mode), default=Mode.BLOCK, help="for live")
    add("--lookahead-ms", type=float, default=100.0, help="for live (default: 100)")
    add("--model", default="live", help=machine.MODEL_HELP)
    add("--json", type=Path, help="write the figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
