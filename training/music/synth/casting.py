"""Casting: an instrument of the bank for every part of a score."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.instruments import INSTRUMENTS, class_of
from training.arrays import Rng
from training.music.notes import Notes
from training.music.synth.bank import Instrument
from training.music.synth.config import SynthConfig
from training.music.synth.scores import Piece

COVERAGE = 0.97  # an instrument fits a part if it can play this fraction of the notes
REACH = 3  # semitones that an instrument can play beyond its recorded range
FONT_WEIGHT = 0.35  # relative frequency of sound fonts among the instruments of a class
SPECTRA_WEIGHT = 0.1  # the same for sets made from measured spectra, without attacks and noise
SPECTRA = "sharc_"
LAYERS_COUNTED = 4  # instruments with more dynamic layers are chosen more often, up to this number
NOTES_COUNTED = 12  # instruments with fewer recorded notes are chosen less often
POLYPHONIC = ("electric piano", "harpsichord", "organ", "plucked", "mallets")
"""Classes beside the piano that can play all parts of a score at once."""
VOICE = INSTRUMENTS.index("voice")
_SONG_VOICE = 68  # the program, an oboe's, that the songs of the corpus give to the voice


def ensemble_group(ensemble: str, collection: str = "") -> str:
    """The group of ``SynthConfig.ensemble_weights`` that a piece belongs to."""
    if ensemble == "solo piano":
        return "pop piano" if collection == "pop909" else "solo piano"
    if ensemble.startswith("orchestra"):
        return "orchestra"
    if "voice" in ensemble:
        return "songs"
    if ensemble == "string quartet":
        return "quartets"
    if ensemble in ("solo violin", "solo viola", "solo cello"):
        return "solo strings"
    return "solo winds" if ensemble.startswith("solo") else "chamber"


def cast(
    piece: Piece, notes: Notes, usable: Sequence[Instrument], config: SynthConfig, rng: Rng
) -> list[Instrument]:
    parts = len(piece.programs)
    group = ensemble_group(piece.ensemble, piece.collection)
    mode = _mode(group, config, rng)
    pianos = [entry for entry in usable if entry.family == "piano"]
    if mode == "piano" and pianos:
        return [choose(pianos, rng)] * parts
    if mode == "polyphonic":
        several = [e for e in usable if e.class_name in POLYPHONIC]
        if several:
            return [fitting(several, notes.pitch, several, rng)] * parts
    chosen = []
    for part, program in enumerate(piece.programs):
        if mode == "keep":
            sung = group == "songs" and program == _SONG_VOICE
            number = VOICE if sung else class_of(program)
            candidates = [e for e in usable if e.number == number]
        elif mode in ("strings", "winds"):
            candidates = [e for e in usable if e.family == mode]
        else:
            candidates = list(usable)
        chosen.append(fitting(candidates, notes.pitch[notes.part == part], usable, rng))
    return chosen


def _mode(group: str, config: SynthConfig, rng: Rng) -> str:
    others = config.reorchestrate_probability
    for_piano = group in ("solo piano", "pop piano")
    if for_piano:
        piano = 1 - 0.28 * others
    elif group == "solo strings":
        piano = config.string_solo_piano_probability
    else:
        piano = config.piano_probability
    if rng.random() < piano:
        return "piano"
    if for_piano:
        return str(rng.choice(["polyphonic", "strings", "winds", "mixed"], p=[0.6, 0.1, 0.1, 0.2]))
    shares = others * np.array([0.1, 0.2, 0.4, 0.3])
    kinds = ["keep", "strings", "winds", "mixed", "polyphonic"]
    return str(rng.choice(kinds, p=[1 - others, *shares]))


def fitting(
    candidates: Sequence[Instrument],
    pitch: NDArray[np.int16],
    usable: Sequence[Instrument],
    rng: Rng,
) -> Instrument:
    """A candidate that can play the notes, else any usable instrument that can, else the best."""
    for entries in (candidates, usable):
        able = [entry for entry in entries if _coverage(entry, pitch) >= COVERAGE]
        if able:
            return choose(able, rng)
    return max(usable, key=lambda entry: _coverage(entry, pitch))


def choose(entries: Sequence[Instrument], rng: Rng) -> Instrument:
    """One of ``entries``: all classes equally often, however many sets of samples they have; within
    a class recorded ones and those with more layers more often."""
    classes = sorted({entry.number for entry in entries})
    number = classes[rng.integers(len(classes))]
    of_class = [entry for entry in entries if entry.number == number]
    layers = [min(LAYERS_COUNTED, len(np.unique(entry.velocity))) for entry in of_class]
    weights = 1.0 + np.array(layers)
    weights *= [_weight(entry) for entry in of_class]
    return of_class[int(rng.choice(len(of_class), p=weights / weights.sum()))]


def _weight(entry: Instrument) -> float:
    share = min(1.0, len(entry.midi) / NOTES_COUNTED)
    if entry.name.startswith(SPECTRA):
        return share * SPECTRA_WEIGHT
    return share if entry.recorded else share * FONT_WEIGHT


def _coverage(entry: Instrument, pitch: NDArray[np.int16]) -> float:
    if not len(pitch):
        return 1.0
    return float(((pitch >= entry.low - REACH) & (pitch <= entry.high + REACH)).mean())
