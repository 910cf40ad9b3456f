"""Accuracy of instruments and pedal, on scores rendered with held-out instruments.

*Solo*: for each held-out entry of the note bank, passages of one part of a score (of a whole score
where the entry can play all parts at once). *Ensembles*: passages of scores for several
instruments, played by held-out entries of at least two classes. *Piano*: passages of piano pieces
on the held-out pianos, for the pedal. All are of validation scores, in rooms and noise as in
training, and go through the service's streaming pipeline.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from model.config import INSTRUMENTS
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.notes.events import Note, PedalPress
from service.protocol.options import StreamOptions
from service.stream.recording import transcribe_array
from training.arrays import F64, Bools, Rng
from training.music.families import Passage
from training.music.metrics import confusion, estimated_notes, matched_onsets, multi_onset_f1
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import (
    Material,
    Take,
    augmented,
    load_material,
    random_piece,
    random_tuning,
)
from training.music.synth.instruments.bank import Instrument
from training.music.synth.instruments.casting import POLYPHONIC, REACH, ensemble_group
from training.music.synth.render import Rendered
from training.music.synth.scores import Piece

PEDAL_FRAME_S = 0.05
HALF_PEDAL = 0.5  # smallest depth that counts as down
COVERED = 0.95  # fraction of a part's notes that a solo instrument must be able to play
ATTEMPTS = 200  # to find a piece that fits
PIANO_GROUPS = ("solo piano", "pop piano")


class Tally:
    """What is right over some passages."""

    def __init__(self) -> None:
        self.confusion = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
        self._f1: list[float] = []
        # Up and down: frames of both, of the labels, as heard.
        self._pedal = np.zeros((2, 3), np.int64)

    def add(self, passage: Passage, notes: list[Note], pedal: Sequence[PedalPress] = ()) -> None:
        """What was heard of a passage."""
        found = estimated_notes(notes)
        matched = matched_onsets(passage.notes, found)
        self.confusion += confusion(passage.notes, found, matched)
        self._f1.append(multi_onset_f1(passage.notes, found, matched))
        if passage.name == "piano" and passage.pedal is not None:
            frames = int(len(passage.audio) / passage.sample_rate / PEDAL_FRAME_S)
            label = _down(passage.pedal[passage.pedal[:, 2] >= HALF_PEDAL, :2], frames)
            presses = np.array([(press.onset_s, press.offset_s) for press in pedal])
            heard = _down(presses.reshape(-1, 2), frames)
            for down in (0, 1):
                one, other = label == down, heard == down
                self._pedal[down] += [(one & other).sum(), one.sum(), other.sum()]

    @property
    def accuracy(self) -> float:
        """Of the instruments of the notes found."""
        return float(self.confusion.trace() / max(1, self.confusion.sum()))

    @property
    def pedal_f1(self) -> tuple[float, float]:
        """In frames of PEDAL_FRAME_S: of the pedal that is up, and that is down."""
        up, down = 2 * self._pedal[:, 0] / np.maximum(1, self._pedal[:, 1:].sum(axis=1))
        return float(up), float(down)

    @property
    def always_down_f1(self) -> float:
        """F1 of a pedal that is held down throughout, to compare with."""
        up, down = self._pedal[:, 1].tolist()
        return 2 * down / max(1, up + 2 * down)

    def figures(self) -> dict[str, Any]:
        """Plain values; the confusion by names, without zeros."""
        return {
            "notes": int(self.confusion.sum()),
            "instrument_accuracy": self.accuracy,
            "multi_onset_f1": float(np.mean(self._f1)) if self._f1 else 0.0,
            "confusion": {
                played: {found: n for found, n in zip(INSTRUMENTS, row, strict=True) if n}
                for played, row in zip(INSTRUMENTS, self.confusion.tolist(), strict=True)
                if any(row)
            },
        }


def _down(presses: F64, frames: int) -> Bools:
    """[frames]: whether the pedal is down in the middle of each; presses: [n, 2] in s."""
    middle = (np.arange(frames) + 0.5) * PEDAL_FRAME_S
    begins, ends = presses[:, :1], presses[:, 1:]
    return np.asarray(((begins <= middle) & (middle < ends)).any(axis=0))


def evaluate_instruments(
    transcriber: EngineModel,
    options: StreamOptions,
    config: SynthConfig,
    passages: int,
    seconds: float,
    show: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Plain values: of ``solo`` and ``ensemble`` the ``instrument_accuracy`` of the notes found,
    ``multi_onset_f1`` and ``confusion``; of ``ensemble`` also the accuracy with the classes that
    play given to the stream (``given``; of a solo, it would always be 1); ``classes``, the solo
    accuracy of each class, and their mean; ``pedal_f1`` in frames of 50 ms, and what it would be
    with the pedal always down.

    passages: of each held-out entry; of ensembles and of pianos there are ten times as many;
    seconds: of a passage, at most; show: is given lines to print.
    """
    tallies = {kind: Tally() for kind in ("solo", "ensemble", "piano")}
    given = Tally()
    with LocalComputer(transcriber) as computer:
        for passage in rendered_passages(config, passages, seconds):
            tally = tallies[passage.name]
            hear = partial(transcribe_array, passage.audio, passage.sample_rate, computer)
            heard = hear(options)
            tally.add(passage, heard.notes, heard.pedal)
            who = ", ".join(passage.instruments)
            line = f"{passage.name:10}{who:60}accuracy {tally.accuracy:.3f}"
            if passage.name == "ensemble":
                given.add(passage, hear(replace(options, instruments=passage.instruments)).notes)
                line += f", given {given.accuracy:.3f}"
            show(line)
    matched = tallies["solo"].confusion
    found = matched.sum(axis=1)
    classes = {
        INSTRUMENTS[n]: float(matched[n, n] / found[n]) for n in np.flatnonzero(found).tolist()
    }
    return {
        "solo": tallies["solo"].figures(),
        "ensemble": tallies["ensemble"].figures() | {"given": given.accuracy},
        "classes": classes,
        "class_mean": float(np.mean(list(classes.values()))) if classes else None,
        "pedal_f1": tallies["piano"].pedal_f1[1],
        "pedal_f1_if_always_down": tallies["piano"].always_down_f1,
    }


def rendered_passages(config: SynthConfig, passages: int, seconds: float) -> Iterator[Passage]:
    """Passages named "solo", "ensemble" and "piano"; the same in every run."""
    rng = np.random.default_rng(config.seed)
    material = load_material(config, "validation")
    rate = material.bank.sample_rate
    held_out = [e for e in material.bank.instruments.values() if e.name in config.held_out]

    def finished(kind: str, rendered: Rendered) -> Passage:
        audio = augmented(rendered.audio, material, config, rng)
        return Passage(kind, audio, rate, rendered.notes, np.zeros((0, 4)), pedal=rendered.pedal)

    def excerpt(piece: Piece, only: tuple[str, ...], settings: SynthConfig = config) -> Rendered:
        take = Take(material, settings, rng, seconds, random_tuning(config, rng))
        return take.of_score(only, piece)

    for entry in held_out:
        for _ in range(passages):
            yield finished("solo", excerpt(_solo(material, entry, rng), (entry.name,)))
    several = replace(config, piano_probability=0.0, string_solo_piano_probability=0.0)
    names = tuple(entry.name for entry in held_out)
    for _ in range(10 * passages):
        for _ in range(ATTEMPTS):
            rendered = excerpt(random_piece(material, rng), names, several)
            if len(set(rendered.notes.instrument.tolist()) - {-1}) > 1:
                yield finished("ensemble", rendered)
                break
    pianos = tuple(entry.name for entry in held_out if entry.class_name == "piano")
    alone = [piece for group in PIANO_GROUPS for piece in material.groups.get(group, [])]
    for _ in range(10 * passages if alone and pianos else 0):
        piece = alone[int(rng.integers(len(alone)))]
        yield finished("piano", excerpt(piece, (pianos[int(rng.integers(len(pianos)))],)))


def _solo(material: Material, entry: Instrument, rng: Rng) -> Piece:
    """A piece, or one part of a piece, that the instrument can play."""
    polyphonic = entry.class_name in ("piano", *POLYPHONIC)
    piece = random_piece(material, rng)
    for _ in range(ATTEMPTS):
        piece = random_piece(material, rng)
        if polyphonic:
            break
        if ensemble_group(piece.ensemble, piece.collection) in PIANO_GROUPS:
            continue
        part = int(rng.integers(len(piece.programs)))
        piece = replace(piece, notes=piece.notes.where(piece.notes.part == part))
        pitch = piece.notes.pitch
        within = (pitch >= entry.low - REACH) & (pitch <= entry.high + REACH)
        if len(pitch) and within.mean() >= COVERED:
            break
    return piece
