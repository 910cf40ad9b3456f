"""Validation by family: what each kind of player, singer or noise does to a network.

Everything comes from training data that training never hears: held-out instruments, singers and
speakers, validation scores, and the validation split of the real recordings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.config import CENTRE_FRAME, FRAMES, HOP, INSTRUMENTS, SAMPLE_RATE, ModelConfig
from model.transcriber import TranscriptionModel
from training.arrays import F32, F64, Rng
from training.music.metrics import frame_average_precision
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, joined
from training.music.real import ALL_PITCHES, RealRecording, load_labelled, load_scored, rows
from training.music.synth.augment import augment
from training.music.synth.bank import HELD_OUT
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import Material, Take, load_material, random_piece
from training.music.synth.noise import Backgrounds, load_backgrounds, random_background
from training.music.synth.render import Rendered
from training.music.targets import ONSET_SCALE, Targets

SEED = 21


class Family(NamedTuple):
    """Who plays and which scores are rendered."""

    classes: tuple[str, ...]  # of ``model.config.INSTRUMENTS``; empty for all
    groups: tuple[str, ...]  # as ``Piece.group``


STRINGS = ("violin", "viola", "cello", "contrabass")
WINDS = ("flute", "oboe", "clarinet", "bassoon", "saxophone")
FAMILIES = {
    "piano": Family(("piano",), ("solo piano", "pop piano")),
    "bowed": Family(STRINGS, ("solo strings", "quartets", "chamber")),
    "plucked": Family(("plucked",), ("songs", "solo strings", "solo piano")),
    "voice": Family(("voice",), ()),
    "reeds and flutes": Family(WINDS, ("solo winds", "chamber", "songs")),
    "brass": Family(("horn", "brass"), ("solo winds", "chamber", "quartets")),
    "ensembles": Family((), ("chamber", "orchestra", "songs", "quartets")),
    "no notes": Family((), ()),
}


@dataclass(frozen=True)
class Passage:
    """A stretch of sound and the notes in it."""

    name: str
    audio: F32  # [samples], -1..1
    sample_rate: int
    notes: Notes  # a velocity of 0 is unknown
    unknown: F64
    """What the labels leave open, [n, 4], as in ``Rendered.unknown``; where approximate notes begin
    is known, to within 40 ms."""
    approximate: bool = False
    pedal: F64 | None = None  # as in ``Rendered.pedal``

    @property
    def instruments(self) -> tuple[str, ...]:
        """The classes that play, by number."""
        return tuple(INSTRUMENTS[n] for n in sorted(set(self.notes.instrument.tolist())) if n >= 0)


def validation_passages(
    config: SynthConfig, count: int = 8, seconds: float = 12.0, seed: int = SEED
) -> dict[str, list[Passage]]:
    """``count`` passages of at most ``seconds`` for each of FAMILIES; deterministic. Without
    ``config.real_root`` all are rendered; a family whose instruments the bank lacks is left out.
    Raises ValueError or OSError for data that cannot be read."""
    material = load_material(config, "validation")
    backgrounds = load_backgrounds(config.root, held_out=True)
    real: dict[str, list[RealRecording]] = {}
    if config.real_root is not None:
        source = config.real_root, config.cache, "validation"
        real = {"piano": load_scored(*source, config.real_left_out), **load_labelled(*source)}
    found = {}
    for number, name in enumerate(FAMILIES):
        rng = np.random.default_rng([seed, number])
        recordings = real.get(name, [])
        real_count = round(count / 2) if recordings else 0
        passages = [_real_passage(recordings, place, seconds, rng) for place in range(real_count)]
        passages += _rendered(name, material, backgrounds, count - real_count, seconds, rng)
        if passages:
            found[name] = passages
    return found


def _real_passage(recordings: list[RealRecording], place: int, seconds: float, rng: Rng) -> Passage:
    """A part of one of the recordings, which take turns."""
    recording = recordings[place % len(recordings)]
    length = min(len(recording.audio), int(seconds * SAMPLE_RATE))
    begin = int(rng.integers(len(recording.audio) - length + 1))
    audio, notes, doubts = recording.part(begin, length)
    before = notes.where(notes.onset < 0)  # of which no listener hears the beginning
    if recording.approximate:
        doubts[:, 3] = FRAME_UNKNOWN
    cut = rows(np.zeros(len(before)), before.offset, before.pitch, FRAME_UNKNOWN)
    name = f"{recording.name}@{begin / SAMPLE_RATE:.1f}"
    notes, doubts = notes.where(notes.onset >= 0), np.concatenate([doubts, cut])
    return Passage(name, audio, SAMPLE_RATE, notes, doubts, recording.approximate)


def _rendered(
    name: str, material: Material, backgrounds: Backgrounds, count: int, seconds: float, rng: Rng
) -> Iterator[Passage]:
    classes, groups = FAMILIES[name]
    bank = material.bank.instruments
    players = tuple(
        entry
        for entry in HELD_OUT
        if entry in bank and (not classes or bank[entry].class_name in classes)
    )
    pieces = {group: some for group, some in material.groups.items() if group in groups}
    for place in range(count):
        take = Take(material, rng, seconds)
        if name == "no notes":
            sound = random_background(int(seconds * SAMPLE_RATE), rng, backgrounds, recorded=1.0)
            dry = Rendered(sound, joined([]))
        elif name == "voice" and material.singers:
            dry = take.of_singing(accompanied=False)
        elif players:
            dry = take.of_score(players, random_piece(pieces or material.groups, rng))
            if name == "ensembles" and backgrounds.kits and rng.random() < 0.4:
                drums = backgrounds.drums(len(dry.audio), rng)
                beaten = max(1e-9, float(np.std(drums)))
                level = float(np.std(dry.audio)) / beaten * rng.uniform(0.3, 1.2)
                dry = replace(dry, audio=dry.audio + np.float32(level) * drums)
        else:
            return
        audio = augment(dry.audio, rng, material.surroundings)
        known = np.zeros((0, 4))
        yield Passage(f"{name} {place}", audio, SAMPLE_RATE, dry.notes, known, pedal=dry.pedal)


Windows = dict[str, Batch]


def family_windows(passages: Mapping[str, Sequence[Passage]], context: int) -> Windows:
    """Windows of all passages, by family."""
    rng = np.random.default_rng(0)
    families = {}
    for name, some in passages.items():
        excerpts = [Excerpt(_frame_labels(one), rng) for one in some]
        hops = [(one, hop) for one in excerpts for hop in range(0, one.positions, 96)]
        batch = empty_batch(len(hops), context)
        for row, (excerpt, hop) in enumerate(hops):
            excerpt.write(hop, batch, row)
        families[name] = batch
    return families


def _frame_labels(passage: Passage) -> Rendered:
    """Frame by frame: what approximate labels say of onsets is not good enough for that."""
    doubts = passage.unknown
    if passage.approximate:
        end_s = len(passage.audio) / SAMPLE_RATE
        doubts = np.concatenate([doubts, rows(np.zeros(1), end_s, ALL_PITCHES, ONSET_UNKNOWN)])
    return Rendered(passage.audio, passage.notes, unknown=doubts)


def predicted(network: TranscriptionModel, batch: Batch) -> F32:
    """Probabilities, (windows, heads, FRAMES, PITCHES)."""
    device = next(network.parameters()).device
    parts = torch.from_numpy(batch.audio).split(64)
    return np.concatenate([network.predict(part.to(device).float()).cpu() for part in parts])


def precision(
    found: F32, head: str, targets: Targets[NDArray[np.uint8]], frames: slice | int
) -> float:
    """Average precision of a head's probabilities, (windows, FRAMES, PITCHES), in some frames, as
    far as labels are known."""
    unknown = targets.onset_unknown if head == "onset" else targets.frame_unknown
    least = 0 if head == "frame" else ONSET_SCALE // 2
    known = unknown[:, frames] == 0
    truth = getattr(targets, head)[:, frames] > least
    return frame_average_precision(found[:, frames][known], truth[known])


def family_metrics(
    config: ModelConfig, heard: dict[str, F32], families: Windows
) -> dict[str, float]:
    """Average precision of frames and onsets at full look-ahead by family, ``frame_ap:NAME`` and
    ``onset_ap:NAME``, and their mean, ``families``; without notes, false onsets in a minute."""
    lookahead = int(0.2 * config.sample_rate / HOP)
    frames = slice(CENTRE_FRAME, FRAMES - lookahead)
    metrics: dict[str, float] = {}
    for name, (_, targets) in families.items():
        if not targets.frame.any():
            onset = heard[name][:, config.heads.index("onset"), frames]
            inner = onset[:, 1:-1]
            peaks = (inner > 0.5) & (inner >= onset[:, :-2]) & (inner > onset[:, 2:])
            minutes = onset.shape[0] * onset.shape[1] * HOP / config.sample_rate / 60
            metrics[f"false_onsets_min:{name}"] = float(peaks.sum()) / minutes
            continue
        for head in ("frame", "onset"):
            found = heard[name][:, config.heads.index(head)]
            metrics[f"{head}_ap:{name}"] = precision(found, head, targets, frames)
    metrics["families"] = float(np.nanmean([v for n, v in metrics.items() if "_ap:" in n]))
    return metrics
