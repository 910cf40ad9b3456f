"""How notes of a piano fall silent: ``python -m training.evaluation.decay --out decay.png``.

Draws the level of the fundamental after the labelled end of isolated notes, by octave, in rendered
training audio and, with ``--recordings FOLDER``, in recordings with labels. If the two differ much,
training teaches wrong offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import soxr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.commands import add_material, documented_parser
from training.music.label_tables import LabelError
from training.music.metrics import NoteList
from training.music.recordings import AudioError, read_audio, read_collection
from training.music.synth.acoustics.augment import augment
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import load_material, random_tuning, score_excerpt

TIMES_S = np.arange(0.0, 1.01, 0.1)
"""After the labelled end."""
BEFORE_S = 0.08
"""Levels are relative to the level this long before the end."""
WINDOW_S = 0.1
SHORTEST_S = 0.25
"""Shorter notes have not settled when they end."""
CLOSE = (0, 1, 2, 12, 19, 24)
"""Intervals to notes whose partials could be mistaken for the fundamental, in semitones."""
OCTAVES = range(1, 8)
EXCERPT_S = 25.0

Curves = dict[int, NDArray[np.float64]]
"""By octave (4 begins at middle C): levels in dB, [notes, len(TIMES_S)]."""


def decays(audio: NDArray[np.float32], notes: NoteList, sample_rate: int) -> Curves:
    """Levels of the fundamentals after the ends of notes that no nearby note masks."""
    found: dict[int, list[NDArray[np.float64]]] = {}
    width = int(WINDOW_S * sample_rate)
    window = np.hanning(width)
    moments = np.concatenate([[-BEFORE_S], TIMES_S])
    for i in range(len(notes)):
        end, pitch = float(notes.offset_s[i]), int(notes.pitch[i])
        begins = np.rint((end + moments) * sample_rate).astype(int) - width // 2
        if end - notes.onset_s[i] < SHORTEST_S or begins[-1] + width > len(audio):
            continue
        covered = np.isin(np.abs(notes.pitch - pitch), CLOSE)
        covered &= (notes.onset_s < end + TIMES_S[-1]) & (notes.offset_s > end - 2 * BEFORE_S)
        covered[i] = False
        if covered.any():
            continue
        turn = 2 * np.pi * 440 * 2 ** ((pitch - 69) / 12) / sample_rate
        probe = window * np.exp(-1j * turn * np.arange(width))
        power = [abs(np.dot(audio[b : b + width], probe)) for b in begins.tolist()]
        level = 20 * np.log10(np.maximum(power, 1e-9))
        found.setdefault(pitch // 12 - 1, []).append(level[1:] - level[0])
    return {octave: np.array(rows) for octave, rows in found.items()}


def pooled(curves: Iterable[Curves]) -> Curves:
    """The notes of several pieces."""
    every = list(curves)
    return {
        octave: np.concatenate([one[octave] for one in every if octave in one])
        for octave in sorted(set().union(*every))
    }


def rendered(config: SynthConfig, excerpts: int, seed: int) -> Iterable[Curves]:
    """Curves of the training pianos in training rooms."""
    rng = np.random.default_rng(seed)
    material = load_material(config)
    config = replace(config, piano_probability=1.0, reorchestrate_probability=0.0)
    for _ in range(excerpts):
        dry = score_excerpt(material, config, EXCERPT_S, random_tuning(config, rng), rng)
        if dry.pedal is None:
            continue
        rate = material.bank.sample_rate
        audio = augment(dry.audio, rate, rng, config.recording, material.surroundings)
        notes = dry.notes
        listed = NoteList(
            notes.onset, notes.offset, notes.pitch.astype(int), notes.velocity.astype(int)
        )
        yield decays(audio, listed, rate)


def recorded(folder: Path) -> Iterable[Curves]:
    """Curves of a folder of labelled recordings. Raises LabelError and AudioError."""
    for recording in read_collection(folder).recordings:
        audio, rate = read_audio(recording.audio)
        audio = np.asarray(soxr.resample(audio, rate, SAMPLE_RATE), np.float32)
        yield decays(audio, recording.notes, SAMPLE_RATE)


def draw(kinds: dict[str, Curves], out: Path) -> None:
    """The median and quartiles of the notes, one axes per octave."""
    figure = Figure((12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 4, sharex=True, sharey=True).ravel()
    for octave, ax in zip(OCTAVES, axes, strict=False):
        ax.set_title(f"C{octave} to B{octave}")
        for name, curves in kinds.items():
            if octave not in curves:
                continue
            low, middle, high = np.percentile(curves[octave], [25, 50, 75], axis=0)
            (line,) = ax.plot(1000 * TIMES_S, middle, label=f"{name} ({len(curves[octave])})")
            ax.fill_between(1000 * TIMES_S, low, high, alpha=0.2, color=line.get_color())
        if ax.lines:
            ax.legend(fontsize="small")
        ax.grid(alpha=0.3)
    axes[0].set_ylim(-50, 5)
    for ax in axes[len(OCTAVES) :]:
        ax.axis("off")
    figure.supxlabel("ms after the labelled end")
    figure.supylabel("level of the fundamental, dB")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = documented_parser("training.evaluation.decay", __doc__)
    add_material(parser)
    parser.add_argument("--excerpts", type=int, default=100, help="rendered, 25 s each")
    parser.add_argument("--recordings", type=Path, help="folder of recordings with labels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="PNG, PDF or SVG")
    options = parser.parse_args(arguments)
    config = SynthConfig(root=options.synth, cache=options.cache)
    try:
        kinds = {"rendered": pooled(rendered(config, options.excerpts, options.seed))}
        if options.recordings:
            kinds["recorded"] = pooled(recorded(options.recordings))
        draw(kinds, options.out)
    except (OSError, ValueError, LabelError, AudioError) as error:
        print(f"training.evaluation.decay: {error}", file=sys.stderr)
        return 1
    for name, curves in kinds.items():
        for octave, levels in curves.items():
            at = ", ".join(f"{level:.0f}" for level in np.median(levels, axis=0)[[0, 2, 5, 10]])
            print(f"{name} C{octave}: {len(levels)} notes; 0, 200, 500, 1000 ms: {at} dB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
