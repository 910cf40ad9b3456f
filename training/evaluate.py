"""Measure the accuracy of a model, through the same pipeline as the service.

    python -m training.evaluate real --data-dir DIR --lookahead-ms 100 200 --json OUT

scores recordings with note labels, in any of the layouts of ``training.music.recordings``. The
JSON holds ``recordings``, their ``mean`` and its 95 % bootstrap ``interval``, each with the figures
that ``definitions`` explains, and ``onset_error_ms``. Labels can be shifted if audio is
known to lag behind them. Recordings or labels that cannot be read are reported and listed in
``failures``, and the exit status is 1; the others are scored.

    python -m training.evaluate instruments --synth DIR    # held-out instruments, and the pedal
    python -m training.evaluate junk --synth DIR           # false notes in speech, drums and noise
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
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from model.storage import load, shipped
from service.protocol.options import Mode, StreamOptions
from training.evaluation.instruments import evaluate_instruments
from training.evaluation.junk import evaluate_junk, held_out_sounds, made_sounds, recorded_sounds
from training.evaluation.real import evaluate_collection
from training.evaluation.scores import evaluate_scores
from training.music.recordings import Collection, read_collection
from training.music.synth.config import CACHE, SynthConfig
from training.musicnet.layout import TEST
from training.musicnet.windows import TEST_STRIDE, ArchiveConfig, labelled_test_set, papers_figure

MIDDLE_MS = 372.0  # look-ahead at which a stream reads the middle of the window
PROG = "python -m training.evaluate"
MAX_JUNK_S = 3600.0
SHOW = partial(print, flush=True)


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    options = _parser(prog).parse_args(arguments)
    try:
        status: int = options.run(options)
    except (ValueError, OSError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    return status


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s WHAT [options]",
        description=(__doc__ or "").partition("\n")[0],
        epilog="Each has its own --help; python -m pydoc training.evaluate says more.",
    )
    commands = parser.add_subparsers(required=True, metavar="WHAT", prog=prog)

    def command(
        run: Callable[[argparse.Namespace], int], about: str, lookahead_ms: float
    ) -> Callable[..., object]:
        """A sub-command with what all have in common; returns its ``add_argument``."""
        name = run.__name__.removeprefix("_")
        one = commands.add_parser(name, usage=f"{prog} {name} [options]", help=about)
        one.set_defaults(run=run, mode=Mode.BLOCK, label_shift_ms=0.0)
        add = one.add_argument
        add("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
        several = "one or several (default: %(default)s)"
        add("--lookahead-ms", type=float, nargs="+", default=[lookahead_ms], help=several)
        add("--block-frames", type=int, help="at once (default: the mode's)")
        add("--json", type=Path, help="write all figures to this file")
        add("--jobs", type=int, default=os.cpu_count() or 1, help="recordings at once")
        return add

    add = command(_real, "recordings with note labels", 200.0)
    add("--data-dir", type=Path, required=True, help="audio and labels, in any layout")
    add("--label-shift-ms", type=float, default=0.0, help="added to the labels")
    waits = "block, or anytime (--lookahead-ms is its longest wait)"
    add("--mode", choices=list(Mode), help=waits)

    add = command(_instruments, "rendered scores on held-out instruments", 100.0)
    _add_rendered(add, required=True, seconds=20.0)
    amount = "of each instrument; ten times as many of ensembles (default: %(default)s)"
    add("--passages", type=int, default=2, help=amount)

    add = command(_scores, "scores performed and written again", 200.0)
    add("--data-dir", type=Path, required=True, help="MusicXML files")
    _add_rendered(add, required=True, seconds=30.0)

    add = command(_junk, "sounds without notes", 200.0)
    _add_rendered(add, required=False, seconds=60.0)
    add("--data-dir", type=Path, help="audio without notes, or a file")

    add = command(_musicnet, "test recordings of MusicNet", MIDDLE_MS)
    add("--data-dir", type=Path, required=True, help="the unpacked archive")
    add("--test", choices=sorted(TEST), default="paper", help="test set")
    add("--cache", type=Path, help="(default: in --data-dir)")
    between = "samples between windows (default: %(default)s)"
    add("--stride", type=int, default=TEST_STRIDE, help=between)
    return parser


def _add_rendered(add: Callable[..., object], required: bool, seconds: float) -> None:
    add("--synth", type=Path, required=required, help="training data: for its held-out sounds")
    add("--cache", type=Path, default=CACHE, help="its cache (default: %(default)s)")
    add("--seconds", type=float, default=seconds, help="of each (default: %(default)g)")


def _real(options: argparse.Namespace) -> int:
    return _report(options, read_collection(options.data_dir))


def _instruments(options: argparse.Namespace) -> int:
    config = SynthConfig(options.synth, options.cache)
    model, stream = load(options.model), _stream(options)
    figures = evaluate_instruments(model, stream, config, options.passages, options.seconds, SHOW)
    print(json.dumps(figures, indent=1))
    _write(options.json, figures)
    return 0


def _scores(options: argparse.Namespace) -> int:
    config = SynthConfig(options.synth, options.cache)
    model, stream = load(options.model), _stream(options)
    figures = evaluate_scores(model, stream, config, options.data_dir, options.seconds, SHOW)
    print(json.dumps({k: v for k, v in figures.items() if k != "scores"}, indent=1))
    _write(options.json, figures)
    return 0


def _junk(options: argparse.Namespace) -> int:
    if not 0 < options.seconds <= MAX_JUNK_S:
        raise ValueError(f"--seconds must be above 0 and at most {MAX_JUNK_S:g}")
    sounds = made_sounds(options.seconds)
    if options.data_dir:
        sounds = chain(sounds, recorded_sounds(options.data_dir))
    if options.synth:
        sounds = chain(sounds, held_out_sounds(options.synth, options.seconds))
    figures = evaluate_junk(load(options.model), _stream(options), sounds, SHOW)
    _write(options.json, figures)
    return _status(figures["failures"])


def _musicnet(options: argparse.Namespace) -> int:
    archive = ArchiveConfig(options.data_dir, options.cache, options.test)
    collection = labelled_test_set(archive)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    paper = papers_figure(load(options.model, device, torch.float32), archive, options.stride)
    print(f"average precision of middle frames: {paper['average_precision']:.4f}")
    return _report(options, collection, paper=paper)


def _report(options: argparse.Namespace, collection: Collection, **more: Any) -> int:
    """Writes ``more``, and the report of one look-ahead; for several the first report, with all of
    them inside. Returns the exit status."""
    model, shift_s = partial(load, options.model), options.label_shift_ms / 1000
    reports = evaluate_collection(collection, model, _streams(options), shift_s, options.jobs, SHOW)
    several = {"by_lookahead": reports} if len(reports) > 1 else {}
    _write(options.json, {**more, **reports[0], **several})
    return _status(reports[0]["failures"])


def _streams(options: argparse.Namespace) -> list[StreamOptions]:
    mode, block = Mode(options.mode), options.block_frames
    return [
        StreamOptions(mode=mode, lookahead_ms=ms, block_frames=block) for ms in options.lookahead_ms
    ]


def _stream(options: argparse.Namespace) -> StreamOptions:
    if len(options.lookahead_ms) > 1:
        raise ValueError("--lookahead-ms takes several values for real and musicnet only")
    return _streams(options)[0]


def _status(failures: dict[str, str]) -> int:
    """The exit status, after the number of recordings that were not scored, each reported
    before."""
    if failures:
        print(f"{len(failures)} not scored (see above)", file=sys.stderr)
    return 1 if failures else 0


def _write(path: Path | None, figures: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1, allow_nan=False))


if __name__ == "__main__":
    sys.exit(main())
