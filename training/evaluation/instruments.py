"""Accuracy of instruments and pedal, on scores rendered with held-out instruments.

*Solo*: for each held-out entry of the note bank, passages of one part of a score (of a whole score
where the entry can play all parts at once). *Ensembles*: passages of scores for several
instruments, played by held-out entries of at least two classes. *Piano*: passages of piano pieces
on the held-out pianos, for the pedal. All are of validation scores, in rooms and noise as in
training, and go through the service's streaming pipeline.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.notes.events import PedalPress
from service.protocol.options import StreamOptions
from service.stream.recording import transcribe_array
from training.evaluation.reports.report import named_confusion
from training.music.metrics import (
    NoteList,
    confusion,
    estimated_notes,
    matched_onsets,
    multi_onset_f1,
    rendered_notes,
)
from training.music.synth.config import SynthConfig
from training.music.synth.excerpts import (
    Material,
    augmented,
    load_material,
    random_piece,
    random_tuning,
    score_excerpt,
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


@dataclass(frozen=True)
class Passage:
    kind: str
    """"solo", "ensemble" or "piano"."""
    audio: NDArray[np.float32]
    notes: NoteList
    pedal: NDArray[np.float64] | None
    """[presses, 3]: begin s, end s, depth; None without a pedal."""

    @property
    def instruments(self) -> tuple[str, ...]:
        """The classes that play, by number."""
        return tuple(INSTRUMENTS[n] for n in sorted(set(self.notes.instrument.tolist())) if n >= 0)


def evaluate_instruments(
    transcriber: EngineModel,
    options: StreamOptions,
    config: SynthConfig,
    passages: int,
    seconds: float,
    show: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Plain values: of ``solo`` and ``ensemble`` the ``instrument_accuracy`` of the notes found and
    ``multi_onset_f1``; of ``ensemble`` also the accuracy with the classes that play given to the
    stream (``given``; of a solo, it would always be 1); ``classes``, the solo accuracy of each
    class, and their mean; ``pedal_f1`` in frames of 50 ms, and what it would be with the pedal
    always down; ``confusion``.

    passages: of each held-out entry; of ensembles and of pianos there are ten times as many;
    seconds: of a passage, at most; show: is given lines to print.
    """
    tallies = {kind: _Tally() for kind in ("solo", "ensemble", "piano")}
    given = _Tally()
    with LocalComputer(transcriber) as computer:
        for passage, rate in rendered_passages(config, passages, seconds):
            tally = tallies[passage.kind]
            hear = partial(transcribe_array, passage.audio, rate, computer)
            free = hear(options)
            tally.add(passage, estimated_notes(free.notes))
            if passage.pedal is not None:
                tally.press(passage.pedal, free.pedal, len(passage.audio) / rate)
            line = f"{passage.kind:10}{', '.join(passage.instruments):60}{tally.line}"
            if passage.kind == "ensemble":
                informed = hear(replace(options, instruments=passage.instruments))
                given.add(passage, estimated_notes(informed.notes))
                line += f", given {given.accuracy:.3f}"
            show(line)
    both = ("solo", "ensemble")
    figures = {kind: tallies[kind].figures() for kind in both}
    figures["ensemble"]["given"] = given.accuracy
    matched = tallies["solo"].confusion
    found = matched.sum(axis=1)
    classes = {
        INSTRUMENTS[n]: float(matched[n, n] / found[n]) for n in np.flatnonzero(found).tolist()
    }
    return {
        **figures,
        "classes": classes,
        "class_mean": float(np.mean(list(classes.values()))) if classes else None,
        "pedal_f1": tallies["piano"].pedal_f1,
        "pedal_f1_if_always_down": tallies["piano"].always_down_f1,
        "confusion": {kind: named_confusion(tallies[kind].confusion) for kind in both},
        "counts": {kind: tallies[kind].confusion.tolist() for kind in both},
    }


class _Tally:
    """Counts over passages."""

    def __init__(self) -> None:
        self.confusion = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
        self._f1: list[float] = []
        # Frames that are down in both, in labels, as predicted; and all.
        self._pedal = np.zeros(4, np.int64)

    def add(self, passage: Passage, found: NoteList) -> None:
        """The notes found of a passage."""
        matched = matched_onsets(passage.notes, found)
        self.confusion += confusion(passage.notes, found, matched)
        self._f1.append(multi_onset_f1(passage.notes, found, matched))

    def press(
        self, known: NDArray[np.float64], predicted: list[PedalPress], seconds: float
    ) -> None:
        found = np.array([(press.onset_s, press.offset_s) for press in predicted]).reshape(-1, 2)
        labels, heard = down_frames(known, seconds), pedal_frames(found, seconds)
        self._pedal += [(labels & heard).sum(), labels.sum(), heard.sum(), len(labels)]

    @property
    def pedal_f1(self) -> float | None:
        """None if no pedal is ever down."""
        both, labels, heard, _ = self._pedal.tolist()
        return 2 * both / (labels + heard) if labels + heard else None

    @property
    def always_down_f1(self) -> float | None:
        """The same of a pedal held down throughout, to compare with."""
        _, labels, _, frames = self._pedal.tolist()
        return 2 * labels / (labels + frames) if frames else None

    @property
    def accuracy(self) -> float:
        return float(self.confusion.trace() / max(1, self.confusion.sum()))

    @property
    def line(self) -> str:
        pedal = self.pedal_f1
        return f"accuracy {self.accuracy:.3f}" + ("" if pedal is None else f", pedal {pedal:.3f}")

    def figures(self) -> dict[str, float | int]:
        return {
            "notes": int(self.confusion.sum()),
            "instrument_accuracy": self.accuracy,
            "multi_onset_f1": float(np.mean(self._f1)) if self._f1 else 0.0,
        }


def pedal_frames(presses: NDArray[np.float64], seconds: float) -> NDArray[np.bool_]:
    """[frames of 50 ms]: whether the pedal is down in the middle of each; presses: [n, 2] in s."""
    middle = (np.arange(int(seconds / PEDAL_FRAME_S)) + 0.5) * PEDAL_FRAME_S
    begins, ends = presses[:, :1], presses[:, 1:]
    return np.asarray(((begins <= middle) & (middle < ends)).any(axis=0))


def down_frames(pedal: NDArray[np.float64], seconds: float) -> NDArray[np.bool_]:
    """The same of a passage's labels, where the pedal is at least half down."""
    return pedal_frames(pedal[pedal[:, 2] >= HALF_PEDAL, :2], seconds)


def rendered_passages(
    config: SynthConfig, passages: int, seconds: float
) -> Iterator[tuple[Passage, int]]:
    """Solo, ensemble and piano passages with their sample rate; the same in every run."""
    rng = np.random.default_rng(config.seed)
    material = load_material(config, "validation")
    rate = material.bank.sample_rate
    held_out = [e for e in material.bank.instruments.values() if e.name in config.held_out]

    def finished(kind: str, rendered: Rendered) -> tuple[Passage, int]:
        audio = augmented(rendered.audio, material, config, rng)
        return Passage(kind, audio, rendered_notes(rendered.notes), rendered.pedal), rate

    def excerpt(piece: Piece, only: tuple[str, ...], settings: SynthConfig = config) -> Rendered:
        tuning = random_tuning(config, rng)
        return score_excerpt(material, settings, seconds, tuning, rng, only, piece)

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


def _solo(material: Material, entry: Instrument, rng: np.random.Generator) -> Piece:
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
