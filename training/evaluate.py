"""Measure the accuracy of a model with the service's pipeline.

    python -m training.evaluate real --data-dir DIR --lookahead-ms 100 200 --json OUT

scores recordings with note labels, in any of the layouts of ``training.music.recordings``. The JSON
contains the figures of ``recordings``, their ``mean`` and its 95 % bootstrap ``interval`` over
recordings, and ``onset_error_ms``. ``definitions`` explains the figures. Use --label-shift-ms if
the audio lags behind the labels. ``failures`` lists recordings that cannot be read or transcribed,
or whose labels do not fit the audio. All other labelled recordings are scored. The exit status is 1
if there are failures.

    python -m training.evaluate families --synth DIR  # by family, and false notes without music
    python -m training.evaluate scores --data-dir DIR --synth DIR  # round trip of MusicXML
    python -m training.evaluate musicnet --data-dir ARCHIVE  # like real, plus the paper's figure

These commands never tune the note tracker on the data that they score.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from model.commands import INTERRUPTED, at_least, interruptible_imports

PROG = "python -m training.evaluate"

with interruptible_imports(PROG):
    import torch

    from model.storage import load, shipped
    from service.protocol.options import Mode, StreamOptions
    from training.evaluation.families import evaluate_families
    from training.evaluation.real import evaluate_collection
    from training.evaluation.score_roundtrip import evaluate_scores
    from training.music.families import validation_passages
    from training.music.recordings import Collection, read_collection
    from training.music.synth.config import CACHE, SynthConfig
    from training.musicnet.windows import TEST_STRIDE, labelled_test_set, paper_metrics

MIDDLE_MS = 372.4  # look-ahead with which predictions come from the middle of the window

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
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    if failures := figures.get("failures"):
        print(f"recordings not scored: {len(failures)} (see above)", file=sys.stderr)
    return 1 if failures else 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, usage="%(prog)s COMMAND [options]", epilog="COMMAND --help lists the options."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", prog=prog)

    def command(
        run: Callable[[argparse.Namespace], Figures], about: str, data: str = ""
    ) -> Callable[..., object]:
        """Add a sub-command with the common options. Return its ``add_argument``."""
        name = run.__name__.removeprefix("_")
        command_parser = commands.add_parser(name, usage=f"{prog} {name} [options]", help=about)
        command_parser.set_defaults(run=run, mode=Mode.BLOCK, label_shift_ms=0.0)
        add = command_parser.add_argument
        if data:
            add("--data-dir", type=Path, required=True, help=data)
        add("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors file")
        at, several = MIDDLE_MS if run is _musicnet else 200.0, run in (_real, _musicnet)
        text = f"look-ahead in ms{', one or several values' if several else ''} (default: {at:g})"
        add("--lookahead-ms", type=float, nargs="+" if several else 1, default=[at], help=text)
        add("--json", type=Path, help="write all figures to this file")
        if several:
            cores, text = os.cpu_count() or 1, "number of processes (default: one per core)"
            add("--jobs", type=at_least(1), default=cores, help=text)
        else:
            add("--synth", type=Path, required=True, help="training data with held-out sounds")
        return add

    add = command(_real, "recordings with note labels", "folder of audio and labels")
    add("--label-shift-ms", type=float, default=0.0, help="time in ms to add to the labels")
    text = "block (default), or anytime with --lookahead-ms as its maximum wait"
    add("--mode", choices=list(Mode), help=text)

    add = command(_families, "passages of every family, and sounds without notes")
    text = "folder of real training recordings, of which the validation split is used"
    add("--real", type=Path, help=text)
    text = "passages of each family (default: %(default)s)"
    add("--passages", type=at_least(1), default=12, help=text)
    text = "length of a passage (default: %(default)g)"
    add("--seconds", type=at_least(1.0), default=20.0, help=text)

    add = command(_scores, "round trip of scores", "folder of MusicXML files")
    text = "length of an excerpt (default: %(default)g)"
    add("--seconds", type=at_least(1.0), default=30.0, help=text)

    add = command(_musicnet, "test recordings of MusicNet", "the unpacked archive")
    text = "samples between windows (default: %(default)s)"
    add("--stride", type=at_least(1), default=TEST_STRIDE, help=text)
    return parser


def _real(options: argparse.Namespace) -> Figures:
    return _scored(options, read_collection(options.data_dir))


def _families(options: argparse.Namespace) -> Figures:
    config = SynthConfig(options.synth, CACHE, real_root=options.real)
    passages = validation_passages(config, options.passages, options.seconds)
    figures = evaluate_families(load(options.model), _streams(options)[0], passages)
    print(json.dumps({k: v for k, v in figures.items() if k != "families"}, indent=1))
    return figures


def _scores(options: argparse.Namespace) -> Figures:
    config, stream = SynthConfig(options.synth, CACHE), _streams(options)[0]
    folder, model = options.data_dir, load(options.model)
    figures = evaluate_scores(model, stream, config, folder, options.seconds)
    print(json.dumps({k: v for k, v in figures.items() if k != "scores"}, indent=1))
    return figures


def _musicnet(options: argparse.Namespace) -> Figures:
    collection = labelled_test_set(options.data_dir)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(options.model, device, torch.float32)
    paper = paper_metrics(model, options.data_dir, options.stride)
    print(f"average precision of middle frames: {paper['average_precision']:.4f}")
    return {"paper": paper, **_scored(options, collection)}


def _scored(options: argparse.Namespace, collection: Collection) -> Figures:
    """Return the report for the first look-ahead. If there are several look-aheads, it contains all
    reports in ``by_lookahead``."""
    model, shift_s = partial(load, options.model), options.label_shift_ms / 1000
    reports = evaluate_collection(collection, model, _streams(options), shift_s, options.jobs)
    several = {"by_lookahead": reports} if len(reports) > 1 else {}
    return {**reports[0], **several}


def _streams(options: argparse.Namespace) -> list[StreamOptions]:
    mode = Mode(options.mode)
    return [StreamOptions(mode=mode, lookahead_ms=ms) for ms in options.lookahead_ms]


if __name__ == "__main__":
    sys.exit(main())
