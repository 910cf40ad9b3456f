"""Measure the accuracy of a model, through the same pipeline as the service.

``python -m training.evaluate real --data-dir DIR --lookahead-ms 200 --json OUT``

DIR holds audio and labels in any of the layouts of ``training.music.recordings``. The JSON holds
``recordings`` and ``mean``, each with frame_ap, frame_f1 (of the frames that the tracked notes
cover), onset_f1 and onset_offset_f1, onset_velocity_f1 if the labels have velocities, and
note_on_delay_ms_p50 and _p95: from a matched note's label to the newest sample of the recording, at
its own rate, that its note_on needed, the resampler's filter included; the 95 % bootstrap
``interval`` of the means over recordings; ``onset_error_ms``; and scores by octave and by
polyphony. Labels with instruments (a MIDI file's programs, a table's column ``program``) add
instrument_accuracy (of the notes found), multi_onset_f1 and ``confusion``, and to the
``--pictures`` one of that. Several look-aheads can be given at once. Labels can be shifted where a
data set's audio is known to lag behind them. Recordings or labels that cannot be read are reported
and listed in ``failures``, and the exit status is 1; the others are scored. Audio without labels is
reported and skipped. Nothing is tuned here.

``python -m training.evaluate instruments --synth DIR --model NAME --json OUT``

Instrument accuracy in solos and in ensembles, in the latter also with the instruments given to the
stream, and F1 of the pedal in frames of 50 ms, for validation scores rendered with held-out
instruments; with ``--pictures`` a confusion matrix.

``python -m training.evaluate junk --model NAME --json OUT``

False notes per minute in synthesised silence, noise, sweeps, drums and speech, and in any audio
below ``--data-dir``; with ``--synth`` also in recorded speech and drums held out of training. Audio
that cannot be read is treated as by ``real``.

``python -m training.evaluate errors --data-dir DIR --json OUT``

Errors on recordings with labels, by kind (``training.evaluation.errors``), for each
recording and overall: places of false frames, kinds of false notes, recall by octave, what the
model hears after the ends of notes, quartiles of the timing of matched onsets. Recordings that
cannot be read are treated as by ``real``.

``python -m training.evaluate scores --data-dir DIR --synth DIR --json OUT``

Scores (MusicXML) performed by held-out instruments, transcribed and written down again: metre, key
and notes in their places (``training.evaluation.scores``). Needs the extra "score".

``python -m training.evaluate musicnet --data-dir DIR --model W --json OUT``

What ``real`` gives, for the test recordings of the MusicNet archive in DIR, and before it the
paper's figure: average precision of the middle frames of all windows ("paper" in the JSON).
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

import numpy as np
import torch

from model.storage import load, shipped
from service.protocol.options import Mode, StreamOptions
from training.evaluation.errors import analyse
from training.evaluation.instruments import evaluate_instruments
from training.evaluation.junk import evaluate_junk, held_out_sounds, made_sounds, recorded_sounds
from training.evaluation.real import evaluate_collection
from training.evaluation.reports.pictures import draw_confusion
from training.evaluation.scores import evaluate_scores
from training.music.recordings import Collection, read_collection
from training.music.synth.config import CACHE, SynthConfig
from training.musicnet.layout import TEST
from training.musicnet.windows import TEST_STRIDE, ArchiveConfig, labelled_test_set, papers_figure

MIDDLE_MS = 372.0  # look-ahead at which a stream reads the middle of the window

PROG = "python -m training.evaluate"
MAX_JUNK_S = 3600.0

LABELLED = "audio and labels, in any layout of training.music.recordings"
SYNTH = "training data: for its held-out sounds"
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
        epilog="Each has its own --help; python -m pydoc training.evaluate describes the figures.",
    )
    commands = parser.add_subparsers(required=True, metavar="WHAT", prog=prog)

    def command(
        run: Callable[[argparse.Namespace], int], about: str, data: str | None, lookahead_ms: float
    ) -> argparse.ArgumentParser:
        """A sub-command with what all have in common; ``data``: what is in its --data-dir."""
        name = run.__name__.removeprefix("_")
        one = commands.add_parser(name, usage=f"{prog} {name} [options]", help=about)
        one.set_defaults(run=run, mode=Mode.BLOCK, pictures=None, label_shift_ms=0.0)
        several = run in (_real, _musicnet)
        add = one.add_argument
        add("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
        if data:
            add("--data-dir", type=Path, required=True, help=data)
        default = f"{'one or several ' if several else ''}(default: {lookahead_ms:g})"
        ahead = {"nargs": "+", "default": [lookahead_ms]} if several else {"default": lookahead_ms}
        add("--lookahead-ms", type=float, help=default, **ahead)
        add("--block-frames", type=int, help="at once (default: the mode's)")
        add("--json", type=Path, help="write all figures to this file")
        if data:
            add("--jobs", type=int, default=os.cpu_count() or 1, help="recordings at once")
        if data == LABELLED:
            add("--label-shift-ms", type=float, default=0.0, help="added to the labels")
        return one

    def rendered(one: argparse.ArgumentParser, required: bool, seconds: float) -> None:
        one.add_argument("--synth", type=Path, required=required, help=SYNTH)
        one.add_argument("--seconds", type=float, default=seconds, help="of each (%(default)g)")

    real = command(_real, "recordings with note labels", LABELLED, 200.0)
    waits = "block, centre, anytime (--lookahead-ms is its longest wait)"
    real.add_argument("--mode", choices=list(Mode), help=waits)
    real.add_argument("--pictures", type=Path, help="folder for predictions over labels")
    instruments = command(_instruments, "rendered scores on held-out instruments", None, 100.0)
    rendered(instruments, required=True, seconds=20.0)
    instruments.add_argument("--cache", type=Path, default=CACHE, help="(%(default)s)")
    amount = "of each instrument; ten times as many of ensembles (default: %(default)s)"
    instruments.add_argument("--passages", type=int, default=2, help=amount)
    instruments.add_argument("--pictures", type=Path, help="folder for confusion matrices")
    scores = command(_scores, "scores performed and written again", "MusicXML files", 200.0)
    rendered(scores, required=True, seconds=30.0)
    scores.add_argument("--cache", type=Path, default=CACHE, help="(%(default)s)")
    command(_errors, "errors by kind", LABELLED, 200.0)
    junk = command(_junk, "sounds without notes", None, 200.0)
    rendered(junk, required=False, seconds=60.0)
    junk.add_argument("--data-dir", type=Path, help="audio without notes, or a file")
    musicnet = command(_musicnet, "test recordings of MusicNet", "the unpacked archive", MIDDLE_MS)
    musicnet.add_argument("--test", choices=sorted(TEST), default="paper", help="test set")
    musicnet.add_argument("--cache", type=Path, help="(default: in --data-dir)")
    between = "samples between windows (default: %(default)s)"
    musicnet.add_argument("--stride", type=int, default=TEST_STRIDE, help=between)
    return parser


def _real(options: argparse.Namespace) -> int:
    return _report(options, read_collection(options.data_dir))


def _instruments(options: argparse.Namespace) -> int:
    (stream,) = _streams(options)
    config = SynthConfig(options.synth, options.cache)
    figures = evaluate_instruments(
        load(options.model), stream, config, options.passages, options.seconds, SHOW
    )
    counts = figures.pop("counts")
    print(json.dumps({k: v for k, v in figures.items() if k != "confusion"}, indent=1))
    if options.pictures:
        for kind, table in counts.items():
            path = options.pictures / f"confusion_{kind}.png"
            draw_confusion(path, f"Instruments, {kind}", np.array(table))
    _write(options.json, figures)
    return 0


def _scores(options: argparse.Namespace) -> int:
    (stream,) = _streams(options)
    config = SynthConfig(options.synth, options.cache)
    figures = evaluate_scores(
        load(options.model), stream, config, options.data_dir, options.seconds, SHOW
    )
    print(json.dumps({k: v for k, v in figures.items() if k != "scores"}, indent=1))
    _write(options.json, figures)
    return 0


def _errors(options: argparse.Namespace) -> int:
    (stream,) = _streams(options)
    figures = analyse(
        read_collection(options.data_dir),
        partial(load, options.model),
        stream,
        options.label_shift_ms / 1000,
        options.jobs,
        SHOW,
    )
    _write(options.json, figures)
    return _status(figures["failures"])


def _junk(options: argparse.Namespace) -> int:
    if not 0 < options.seconds <= MAX_JUNK_S:
        raise ValueError(f"--seconds must be above 0 and at most {MAX_JUNK_S:g}")
    sounds = made_sounds(options.seconds)
    if options.data_dir:
        sounds = chain(sounds, recorded_sounds(options.data_dir))
    if options.synth:
        sounds = chain(sounds, held_out_sounds(options.synth, options.seconds))
    (stream,) = _streams(options)
    figures = evaluate_junk(load(options.model), stream, sounds, SHOW)
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
    reports = evaluate_collection(
        collection,
        partial(load, options.model),
        _streams(options),
        options.label_shift_ms / 1000,
        options.jobs,
        options.pictures,
        SHOW,
    )
    several = {"by_lookahead": reports} if len(reports) > 1 else {}
    _write(options.json, {**more, **reports[0], **several})
    return _status(reports[0]["failures"])


def _streams(options: argparse.Namespace) -> list[StreamOptions]:
    ahead, mode = options.lookahead_ms, Mode(options.mode)
    return [
        StreamOptions(mode=mode, lookahead_ms=ms, block_frames=options.block_frames)
        for ms in (ahead if isinstance(ahead, list) else [ahead])
    ]


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
