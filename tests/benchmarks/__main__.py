"""``python -m tests.benchmarks PART [--quick] [--json OUT]``: speed on this machine."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.protocol.options import Mode
from tests.benchmarks import gpu, load, machine
from tests.benchmarks.service import file, host, live, streams

Part = Callable[[argparse.Namespace], dict[str, Any]]

PARTS: dict[str, tuple[Part, str]] = {
    "file": (file.run, "an hour-long recording: times real time, peak memory"),
    "streams": (streams.run, "the most concurrent real-time streams"),
    "host": (host.run, "what a stream costs a processor beside the model"),
    "gpu": (gpu.run, "batches and streams on a GPU, against its measured rate"),
    "load": (load.run, "the sessions that are admitted, and more"),
}
ALL = [name for name in PARTS if name != "load"]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine.describe()}
    failed = False
    if options.part == "live":
        figures["live"] = live.run(
            options.audio, options.seconds, options.model, options.lookahead_ms, options.mode
        )
    else:
        for name in ALL if options.part == "all" else [options.part]:
            part, about = PARTS[name]
            print(f"{name}: {about} ...", file=sys.stderr)
            try:
                figures[name] = part(options)
            except Exception as error:  # the other parts are worth having
                traceback.print_exc()
                figures[name], failed = {"failed": repr(error)}, True
            _write(figures, options.json)  # a long run that is stopped keeps what it has
    _write(figures, options.json)
    print("\n".join(f"{name:<60} {value}" for name, value in rows(figures)))
    return 1 if failed else 0


def rows(figures: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    """A line for each thing measured, named by its way down: the figures that belong together."""
    lines: list[tuple[str, str]] = []
    for name, value in figures.items():
        path = f"{above} / {name}" if above else name
        if not isinstance(value, dict) or "median" in value:
            lines.append((path, _text(value)))
        elif all(not isinstance(one, dict) or "median" in one for one in value.values()):
            lines.append((path, "; ".join(f"{k} {_text(one)}" for k, one in value.items())))
        else:
            lines += rows(value, path)
    return lines


def _text(value: Any) -> str:
    match value:
        case {"median": median, "low": low, "high": high}:
            return f"{median:.4g} ({low:.4g} ... {high:.4g})"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def _write(figures: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    stream = parts.add_parser("live", help="one 48 kHz stream at real-time pace")
    stream.add_argument("audio", type=Path, help="any recording")
    stream.add_argument("--seconds", type=float, default=120.0, help="of it to stream")
    stream.add_argument("--lookahead-ms", type=float, default=100.0)
    stream.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.BLOCK)
    _common(stream)
    everything = "all of these but load, one after the other"
    for name, text in [*((name, text) for name, (_, text) in PARTS.items()), ("all", everything)]:
        part = parts.add_parser(name, help=text)
        part.add_argument("--quick", action="store_true", help="minutes: shorter and fewer runs")
        part.add_argument("--audio", type=Path, help="a recording (default: synthetic chords)")
        _common(part)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=machine.usual_model(), help=machine.MODEL_HELP)
    parser.add_argument("--json", type=Path, help="write the figures to this file")


if __name__ == "__main__":
    sys.exit(main())
