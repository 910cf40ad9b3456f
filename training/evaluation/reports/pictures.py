"""Pictures: predictions over labels, and the confusion of instruments.

As the last figure of the paper's appendix: above, the frame probabilities as shades; below, the
labels; time to the right, pitch upwards. Notes that the tracker made of them are outlined.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from model.config import INSTRUMENTS, PITCHES
from training.music.metrics import NoteList

SECONDS = 30.0  # of a recording, from its first note
MARGIN = 3  # semitones above and below
INCHES = (12.0, 7.0)


def draw_confusion(path: Path, title: str, counts: NDArray[np.int64]) -> None:
    """Writes a PNG: fractions of the notes of each instrument (rows) by predicted instrument.

    counts: [classes, classes]; classes that are neither played nor predicted are left out.
    """
    shown = np.flatnonzero(counts.any(axis=0) | counts.any(axis=1))
    counts = counts[np.ix_(shown, shown)]
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(1, totals)[:, None]
    names = [INSTRUMENTS[number] for number in shown]
    size = 2.5 + 0.5 * len(shown)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), share in np.ndenumerate(shares):
        if counts[row, column]:
            colour = "white" if share > 0.6 else "black"
            axes.text(column, row, f"{share:.2f}", color=colour, ha="center", va="center", size=7)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
    axes.set_yticks(
        range(len(names)), [f"{n} ({total})" for n, total in zip(names, totals, strict=True)]
    )
    axes.set_xlabel("predicted")
    axes.set_ylabel("played (notes found)")
    axes.set_title(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def draw_rolls(
    path: Path,
    title: str,
    probabilities: NDArray[np.float32],
    reference: NoteList,
    estimated: NoteList,
    frame_s: float,
) -> None:
    """Write a PNG. probabilities: (frames, PITCHES)."""
    begin_s = float(reference.onset_s.min()) if len(reference) else 0.0
    first = int(begin_s / frame_s)
    frames = slice(first, first + round(SECONDS / frame_s))
    heard = probabilities[frames]
    played = reference.roll(len(probabilities), frame_s)[frames]
    shown = np.flatnonzero(played.any(axis=0) | (heard > 0.5).any(axis=0))
    low, high = (shown[0], shown[-1]) if len(shown) else (48, 72)
    low, high = max(0, low - MARGIN), min(PITCHES - 1, high + MARGIN)
    extent = (first * frame_s, (first + len(heard)) * frame_s, low - 0.5, high + 0.5)

    figure = Figure(figsize=INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, roll, words in ((above, heard, "heard"), (below, played, "played")):
        axes.imshow(
            roll[:, low : high + 1].T,
            cmap="Greys",
            vmin=0,
            vmax=1,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            extent=extent,
        )
        axes.set_ylabel(f"{words} (MIDI pitch)")
    near = (estimated.offset_s > extent[0]) & (estimated.onset_s < extent[1])
    for onset, offset, pitch in zip(
        estimated.onset_s[near], estimated.offset_s[near], estimated.pitch[near], strict=True
    ):
        edges = [onset, offset, offset, onset, onset]
        heights = [pitch - 0.5, pitch - 0.5, pitch + 0.5, pitch + 0.5, pitch - 0.5]
        above.plot(edges, heights, color="tab:red", linewidth=0.6)
    above.set_xlim(*extent[:2])
    above.set_ylim(*extent[2:])
    below.set_xlabel("seconds")
    above.set_title(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
