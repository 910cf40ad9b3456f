"""Measure the accuracy of a model, through the same pipeline as the service.

    python -m training.evaluate real --data-dir DIR --lookahead-ms 100 200 --json OUT

scores recordings with note labels, in any of the layouts of ``training.music.recordings``. The
JSON holds ``recordings``, their ``mean`` and its 95 % bootstrap ``interval``, each with the figures
that ``definitions`` explains, and ``onset_error_ms``. Labels can be shifted if audio is
known to lag behind them. Recordings or labels that cannot be read are reported and listed in
``failures``, and the exit status is 1; the others are scored.

    python -m training.evaluate families --synth DIR  # by family, and false notes in other sounds
    python -m training.evaluate scores --data-dir DIR --synth DIR  # MusicXML, written down again
    python -m training.evaluate musicnet --data-dir ARCHIVE        # as real; the paper's figure too

Each has its own --help. Nothing is tuned here.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from model.storage import load, shipped
from service.protocol.options import Mode, StreamOptions
from training.evaluation.families import evaluate_families
from training.evaluation.real import evaluate_collection
from training.evaluation.score_roundtrip import evaluate_scores
from training.music.families import validation_passages
from training.music.recordings import Collection, read_collection
from training.music.synth.config import CACHE, SynthConfig
from training.musicnet.windows import TEST_STRIDE, labelled_test_set, papers_figure

MIDDLE_MS = 372.0  # look-ahead at which a stream reads the middle of the window
PROG = "python -m training.evaluate"

Figures = dict[str, Any]


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    options = _parser(prog).parse_args(arguments)
    try:
        figures: Figures = options.run(options)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(figures, indent=1, allow_nan=False))
    except (ValueError, OSError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    if failures := figures.get("failures"):
        print(f"{len(failures)} not scored (see above)", file=sys.stderr)
    return 1 if failures else 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, usage="%(prog)s WHAT [options]", epilog="Each has its own --help."
    )
    commands = parser.add_subparsers(required=True, metavar="WHAT", prog=prog)

    def command(
        run: Callable[[argparse.Namespace], Figures], about: str, data: str = ""
    ) -> Callable[..., object]:
        """A sub-command with what all have in common; returns its ``add_argument``."""
        name = run.__name__.removeprefix("_")
        one = commands.add_parser(name, usage=f"{prog} {name} [options]", help=about)
        one.set_defaults(run=run, mode=Mode.BLOCK, label_shift_ms=0.0)
        add = one.add_argument
        if data:
            add("--data-dir", type=Path, required=True, help=data)
        add("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
        at, several = MIDDLE_MS if run is _musicnet else 200.0, run in (_real, _musicnet)
        text = f"{'one or several ' if several else ''}(default: {at:g})"
        add("--lookahead-ms", type=float, nargs="+" if several else 1, default=[at], help=text)
        add("--json", type=Path, help="write all figures to this file")
        if several:
            add("--jobs", type=int, default=os.cpu_count() or 1, help="recordings at once")
        else:
            add("--synth", type=Path, required=True, help="training data: for held-out sounds")
            add("--cache", type=Path, default=CACHE, help="its cache (default: %(default)s)")
        return add

    add = command(_real, "recordings with note labels", "audio and labels, in any layout")
    add("--label-shift-ms", type=float, default=0.0, help="added to the labels")
    waits = "block, or anytime (--lookahead-ms is its longest wait)"
    add("--mode", choices=list(Mode), help=waits)

    add = command(_families, "passages of every family, and sounds without notes")
    add("--real", type=Path, help="real recordings of training: for their validation split")
    add("--passages", type=int, default=12, help="of each family (default: %(default)s)")
    add("--seconds", type=float, default=20.0, help="of each (default: %(default)g)")

    add = command(_scores, "scores performed and written again", "MusicXML files")
    add("--seconds", type=float, default=30.0, help="of each (default: %(default)g)")

    add = command(_musicnet, "test recordings of MusicNet", "the unpacked archive")
    between = "samples between windows (default: %(default)s)"
    add("--stride", type=int, default=TEST_STRIDE, help=between)
    return parser


def _real(options: argparse.Namespace) -> Figures:
    return _scored(options, read_collection(options.data_dir))


def _families(options: argparse.Namespace) -> Figures:
    config = SynthConfig(options.synth, options.cache, real_root=options.real)
    passages = validation_passages(config, options.passages, options.seconds)
    figures = evaluate_families(load(options.model), _streams(options)[0], passages)
    print(json.dumps({k: v for k, v in figures.items() if k != "families"}, indent=1))
    return figures


def _scores(options: argparse.Namespace) -> Figures:
    config, stream = SynthConfig(options.synth, options.cache), _streams(options)[0]
    folder, model = options.data_dir, load(options.model)
    figures = evaluate_scores(model, stream, config, folder, options.seconds)
    print(json.dumps({k: v for k, v in figures.items() if k != "scores"}, indent=1))
    return figures


def _musicnet(options: argparse.Namespace) -> Figures:
    collection = labelled_test_set(options.data_dir)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(options.model, device, torch.float32)
    paper = papers_figure(model, options.data_dir, options.stride)
    print(f"average precision of middle frames: {paper['average_precision']:.4f}")
    return {"paper": paper, **_scored(options, collection)}


def _scored(options: argparse.Namespace, collection: Collection) -> Figures:
    """The report of one look-ahead; for several the first, with all of them inside."""
    model, shift_s = partial(load, options.model), options.label_shift_ms / 1000
    reports = evaluate_collection(collection, model, _streams(options), shift_s, options.jobs)
    several = {"by_lookahead": reports} if len(reports) > 1 else {}
    return {**reports[0], **several}


def _streams(options: argparse.Namespace) -> list[StreamOptions]:
    mode = Mode(options.mode)
    return [StreamOptions(mode=mode, lookahead_ms=ms) for ms in options.lookahead_ms]


if __name__ == "__main__":
    sys.exit(main())
