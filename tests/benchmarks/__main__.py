"""``python -m tests.benchmarks live AUDIO [--json OUT]``: speed on this machine."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import torch

from tests.benchmarks import live


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    stream = parts.add_parser("live", help="one 48 kHz stream at real-time pace")
    stream.add_argument("audio", type=Path, help="any recording")
    stream.add_argument("--seconds", type=float, default=120.0, help="of it to stream")
    stream.add_argument("--lookahead-ms", type=float, default=100.0)
    stream.add_argument("--model", default="live")
    stream.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    figures = {
        "machine": {
            "processor": _processor(),
            "cores": torch.get_num_threads(),
            "torch": torch.__version__,
        },
        "live": live.run(options.audio, options.seconds, options.model, options.lookahead_ms),
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def _processor() -> str:
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return str(capabilities.get("cpu_name") or platform.processor() or platform.machine())


if __name__ == "__main__":
    sys.exit(main())
