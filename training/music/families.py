"""Validation by family: what each kind of player, singer or noise does to a network.

Everything comes from training data that training never hears: held-out instruments, singers and
speakers, validation scores, and the validation split of the real recordings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from model.config import CENTRE_FRAME, FRAMES, HOP, INSTRUMENTS, SAMPLE_RATE, ModelConfig
from model.transcriber import TranscriptionModel
from training.arrays import F32, F64, Rng
from training.music.labelled import load_labelled
from training.music.metrics import frame_average_precision
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, joined
from training.music.real import ALL_PITCHES, ScoredRecording, load_recordings, rows
from training.music.synth import noise
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import (
    Material,
    Take,
    augmented,
    load_material,
    random_piece,
    random_tuning,
)
from training.music.synth.render import Rendered
from training.music.synth.surroundings import load_backgrounds
from training.music.targets import ONSET_SCALE, Targets

SEED = 21
REAL = 0.5  # fraction of a family's passages that are real recordings, if there are any
DRUMS = 0.4  # fraction of the ensembles with drums


@dataclass(frozen=True)
class Family:
    """Who plays and which scores are rendered."""

    classes: tuple[str, ...]  # of ``model.config.INSTRUMENTS``; empty for all
    groups: tuple[str, ...]
    """Of ``SynthConfig.ensemble_weights``; none if nothing is rendered from scores."""


FAMILIES = {
    "piano": Family(("piano",), ("solo piano", "pop piano")),
    "bowed": Family(
        ("violin", "viola", "cello", "contrabass"), ("solo strings", "quartets", "chamber")
    ),
    "plucked": Family(("plucked",), ("songs", "solo strings", "solo piano")),
    "voice": Family(("voice",), ()),
    "reeds and flutes": Family(
        ("flute", "oboe", "clarinet", "bassoon", "saxophone"), ("solo winds", "chamber", "songs")
    ),
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

    @property
    def rendered(self) -> Rendered:
        """For judging frame by frame: what approximate labels say of onsets is not good enough."""
        unknown = self.unknown
        if self.approximate:
            everywhere = [[0, len(self.audio) / self.sample_rate, ALL_PITCHES, ONSET_UNKNOWN]]
            unknown = np.concatenate([unknown, everywhere])
        return Rendered(self.audio, self.notes, unknown=unknown)


def validation_passages(
    config: SynthConfig, count: int = 8, seconds: float = 12.0, seed: int = SEED
) -> dict[str, list[Passage]]:
    """``count`` passages of at most ``seconds`` for each of FAMILIES; deterministic. Without
    ``config.real_root`` all are rendered; a family whose instruments the bank lacks is left out.
    Raises ValueError or OSError for data that cannot be read."""
    material = load_material(config, "validation")
    real = _recordings(config)
    found = {}
    for number, (name, family) in enumerate(FAMILIES.items()):
        rng = np.random.default_rng([seed, number])
        recordings = real.get(name, [])
        of_real = round(REAL * count) if recordings else 0
        passages = [_part(recordings, place, seconds, rng) for place in range(of_real)]
        passages += _rendered(name, family, material, config, count - of_real, seconds, rng)
        if passages:
            found[name] = passages
    return found


def _recordings(config: SynthConfig) -> dict[str, list[ScoredRecording]]:
    """The real recordings of the validation split, by family."""
    if config.real_root is None:
        return {}
    root, cache = config.real_root, config.cache
    labelled = load_labelled(root, cache, "validation")
    scored = load_recordings(root, cache, "validation", config.real_left_out)
    return {"piano": scored, **labelled}


def _part(recordings: list[ScoredRecording], place: int, seconds: float, rng: Rng) -> Passage:
    """A part of one of the recordings, which take turns."""
    recording = recordings[place % len(recordings)]
    rate = SAMPLE_RATE
    length = min(len(recording.audio), int(seconds * rate))
    begin = int(rng.integers(len(recording.audio) - length + 1))
    audio, notes, doubts = recording.part(begin, length)
    before = notes.where(notes.onset < 0)  # of which no listener hears the beginning
    if recording.approximate:
        doubts[:, 3] = FRAME_UNKNOWN
    cut = rows(np.zeros(len(before)), before.offset, before.pitch, FRAME_UNKNOWN)
    unknown = np.concatenate([doubts, cut])
    name = f"{recording.name}@{begin / rate:.1f}"
    return Passage(name, audio, rate, notes.where(notes.onset >= 0), unknown, recording.approximate)


def _rendered(
    name: str,
    family: Family,
    material: Material,
    config: SynthConfig,
    count: int,
    seconds: float,
    rng: Rng,
) -> Iterator[Passage]:
    rate = material.bank.sample_rate
    players = tuple(
        entry
        for entry in config.held_out
        if entry in material.bank.instruments
        if not family.classes or material.bank.instruments[entry].class_name in family.classes
    )
    backgrounds = load_backgrounds(config.root, rate, held_out=True)
    for place in range(count):
        take = Take(material, config, rng, seconds, random_tuning(config, rng))
        if name == "no notes":
            kinds = config.background_kinds
            sound = noise.background(int(seconds * rate), rate, kinds, rng, backgrounds)
            dry = Rendered(sound, joined([]))
        elif name == "voice" and material.singers:
            dry = take.of_singing(accompanied=False)
        elif players:
            chosen = random_piece(_of_groups(material, family.groups), rng)
            dry = take.of_score(players, chosen)
            if name == "ensembles" and backgrounds.kits and rng.random() < DRUMS:
                drums = backgrounds.drums(len(dry.audio), rng)
                beaten = max(1e-9, float(np.std(drums)))
                level = float(np.std(dry.audio)) / beaten * rng.uniform(0.3, 1.2)
                dry = replace(dry, audio=dry.audio + np.float32(level) * drums)
        else:
            return
        audio = augmented(dry.audio, material, config, rng)
        nothing = np.zeros((0, 4))
        yield Passage(f"{name} {place}", audio, rate, dry.notes, nothing, pedal=dry.pedal)


def _of_groups(material: Material, groups: tuple[str, ...]) -> Material:
    """The material with the pieces of these groups alone, or all if it has none of them."""
    wanted = np.array([name in groups for name in material.groups], bool)
    weights = material.weights * wanted
    if not weights.sum():
        return material
    return replace(material, weights=weights / weights.sum())


LOOKAHEAD_S = 0.2  # frames with less look-ahead are not judged
STEP = 96  # hops between windows
BATCH = 64

Windows = dict[str, Batch]


def family_windows(passages: Mapping[str, Sequence[Passage]], context: int) -> Windows:
    """Windows of all passages, by family."""
    rng = np.random.default_rng(0)
    families = {}
    for name, some in passages.items():
        excerpts = [Excerpt(one.rendered, one.sample_rate, rng) for one in some]
        hops = [(one, hop) for one in excerpts for hop in range(0, one.positions, STEP)]
        batch = empty_batch(len(hops), context)
        for row, (excerpt, hop) in enumerate(hops):
            excerpt.write(hop, batch, row)
        families[name] = batch
    return families


def predicted(network: TranscriptionModel, batch: Batch) -> F32:
    """Probabilities, (windows, heads, FRAMES, PITCHES)."""
    device = next(network.parameters()).device
    parts = torch.from_numpy(batch.audio).split(BATCH)
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
    frames = slice(CENTRE_FRAME, FRAMES - int(LOOKAHEAD_S * config.sample_rate / HOP))
    metrics: dict[str, float] = {}
    for name, (_, targets) in families.items():
        onset = heard[name][:, config.heads.index("onset"), frames]
        if not targets.frame.any():
            seconds = onset.shape[0] * onset.shape[1] * HOP / config.sample_rate
            metrics[f"false_onsets_min:{name}"] = 60 * _peaks(onset) / seconds
            continue
        for head in ("frame", "onset"):
            found = heard[name][:, config.heads.index(head)]
            metrics[f"{head}_ap:{name}"] = precision(found, head, targets, frames)
    metrics["families"] = float(np.nanmean([v for n, v in metrics.items() if "_ap:" in n]))
    return metrics


def _peaks(onset: F32) -> int:
    """Maxima over time above a half; onset: (windows, frames, pitches)."""
    inner = onset[:, 1:-1]
    above = (inner > 0.5) & (inner >= onset[:, :-2]) & (inner > onset[:, 2:])
    return int(above.sum())
