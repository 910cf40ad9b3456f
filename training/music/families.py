"""Validation passages and metrics for each family of instruments, and for sounds without notes.

The passages use held-out instruments, singers and speakers, validation scores, and the validation
split of the real recordings. Only their rooms and noises are also used in training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.config import CENTRE_FRAME, FRAMES, HOP, INSTRUMENTS, SAMPLE_RATE, ModelConfig
from model.instruments import UNKNOWN
from model.transcriber import TranscriptionModel
from training.arrays import F32, F64, Rng
from training.music.metrics import frame_average_precision
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, joined
from training.music.real import ALL_PITCHES, RealRecording, load_labelled, load_scored, rows
from training.music.synth.augment import augment
from training.music.synth.bank import HELD_OUT
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import (
    ExcerptBuilder,
    TrainingSources,
    load_sources,
    random_piece,
)
from training.music.synth.noise import Backgrounds, load_backgrounds, random_background
from training.music.synth.render import BOWED, Rendered
from training.music.targets import ONSET_SCALE, Targets

SEED = 21


class Family(NamedTuple):
    """Instruments and scores of rendered passages."""

    classes: tuple[str, ...]  # names in ``model.config.INSTRUMENTS``; empty: all
    groups: tuple[str, ...]  # values of ``Piece.group``; empty: all


WINDS = ("flute", "oboe", "clarinet", "bassoon", "saxophone")
FAMILIES = {
    "piano": Family(("piano",), ("solo piano", "pop piano")),
    "bowed": Family(BOWED, ("solo strings", "quartets", "chamber")),
    "plucked": Family(("plucked",), ("songs", "solo strings", "solo piano")),
    "voice": Family(("voice",), ()),
    "reeds and flutes": Family(WINDS, ("solo winds", "chamber", "songs")),
    "brass": Family(("horn", "brass"), ("solo winds", "chamber", "quartets")),
    "ensembles": Family((), ("chamber", "orchestra", "songs", "quartets")),
    "no notes": Family((), ()),
}


@dataclass(frozen=True)
class Passage:
    """Audio and its labels."""

    name: str
    audio: F32  # [samples] at SAMPLE_RATE, -1..1
    notes: Notes  # velocity 0 means unknown
    unknown: F64  # [n, 4]: regions in which the labels are uncertain (see ``Rendered.unknown``)
    approximate: bool = False  # true if onsets are accurate only to 40 ms
    pedal: F64 | None = None  # see ``Rendered.pedal``


def validation_passages(
    config: SynthConfig, count: int = 8, seconds: float = 12.0, seed: int = SEED
) -> dict[str, list[Passage]]:
    """Return ``count`` passages of at most ``seconds`` for each family, drawn with ``seed``.

    If ``config.real_root`` has recordings of a family, half of its passages are real. The others
    are rendered. Families without instruments and recordings are omitted. Raises ValueError or
    OSError for data that cannot be read.
    """
    sources = load_sources(config, "validation")
    backgrounds = load_backgrounds(config.root, held_out=True)
    real: dict[str, list[RealRecording]] = {}
    if config.real_root is not None:
        source = config.real_root, config.cache, "validation"
        real = load_labelled(*source)
        for recording in load_scored(*source):
            real.setdefault(_family_of(recording), []).append(recording)
    families = {}
    for number, name in enumerate(FAMILIES):
        rng = np.random.default_rng([seed, number])
        recordings = real.get(name, [])
        real_count = round(count / 2) if recordings else 0
        passages = [_real_passage(recordings, i, seconds, rng) for i in range(real_count)]
        passages += _rendered(name, sources, backgrounds, count - real_count, seconds, rng)
        if passages:
            families[name] = passages
    return families


def _family_of(recording: RealRecording) -> str:
    """Return the family of a soloist, or "ensembles" for several or other instruments."""
    soloist = set(recording.notes.instrument.tolist()) - {UNKNOWN}
    classes = {INSTRUMENTS[number] for number in soloist}
    return next((name for name, of in FAMILIES.items() if classes & set(of.classes)), "ensembles")


def _real_passage(recordings: list[RealRecording], index: int, seconds: float, rng: Rng) -> Passage:
    """Cut a random excerpt from recording ``index`` modulo the number of recordings."""
    recording = recordings[index % len(recordings)]
    length = min(len(recording.audio), int(seconds * SAMPLE_RATE))
    start = int(rng.integers(len(recording.audio) - length + 1))
    return recorded_passage(recording, start, length)


def recorded_passage(recording: RealRecording, start: int, length: int) -> Passage:
    """Cut ``length`` samples of a recording from sample ``start``."""
    audio, notes, unknown = recording.part(start, length)
    before = notes.where(notes.onset < 0)  # notes that start before the excerpt
    if recording.approximate:
        unknown[:, 3] = FRAME_UNKNOWN
    cut = rows(np.zeros(len(before)), before.offset, before.pitch, FRAME_UNKNOWN)
    name = f"{recording.name}@{start / SAMPLE_RATE:.1f}"
    notes, unknown = notes.where(notes.onset >= 0), np.concatenate([unknown, cut])
    return Passage(name, audio, notes, unknown, recording.approximate)


def _rendered(
    name: str,
    sources: TrainingSources,
    backgrounds: Backgrounds,
    count: int,
    seconds: float,
    rng: Rng,
) -> Iterator[Passage]:
    classes, groups = FAMILIES[name]
    bank = sources.bank.instruments
    instruments = tuple(
        entry
        for entry in HELD_OUT
        if entry in bank and (not classes or bank[entry].class_name in classes)
    )
    pieces = {group: of_group for group, of_group in sources.groups.items() if group in groups}
    for number in range(count):
        builder = ExcerptBuilder(sources, rng, seconds)
        if name == "no notes":
            sound = random_background(int(seconds * SAMPLE_RATE), rng, backgrounds, recorded=1.0)
            dry = Rendered(sound, joined([]))
        elif name == "voice" and sources.singers:
            dry = builder.render_singing(accompanied=False)
        elif instruments:
            dry = builder.render_score(instruments, random_piece(pieces or sources.groups, rng))
            if name == "ensembles" and backgrounds.kits and rng.random() < 0.4:
                drums = backgrounds.drums(len(dry.audio), rng)
                drums_level = max(1e-9, float(np.std(drums)))
                gain = float(np.std(dry.audio)) / drums_level * rng.uniform(0.3, 1.2)
                dry = replace(dry, audio=dry.audio + np.float32(gain) * drums)
        else:
            return
        audio = augment(dry.audio, rng, sources.surroundings)
        unknown = np.zeros((0, 4))
        yield Passage(f"{name} {number}", audio, dry.notes, unknown, pedal=dry.pedal)


Windows = dict[str, Batch]


def family_windows(passages: Mapping[str, Sequence[Passage]], context: int) -> Windows:
    """Return a window per 96 hops of all passages, by family. context: samples before a window."""
    rng = np.random.default_rng(0)
    families = {}
    for name, of_family in passages.items():
        excerpts = [Excerpt(_frame_labels(passage), rng) for passage in of_family]
        hops = [(excerpt, hop) for excerpt in excerpts for hop in range(0, excerpt.positions, 96)]
        batch = empty_batch(len(hops), context)
        for row, (excerpt, hop) in enumerate(hops):
            excerpt.write(hop, batch, row)
        families[name] = batch
    return families


def _frame_labels(passage: Passage) -> Rendered:
    """Return the passage with labels for frame-level metrics. These metrics need exact onsets, so
    all onsets of a passage with approximate labels become unknown."""
    unknown = passage.unknown
    if passage.approximate:
        end_s = len(passage.audio) / SAMPLE_RATE
        onsets = rows(np.zeros(1), end_s, ALL_PITCHES, ONSET_UNKNOWN)
        unknown = np.concatenate([unknown, onsets])
    return Rendered(passage.audio, passage.notes, passage.pedal, unknown)


def predict_windows(network: TranscriptionModel, batch: Batch) -> F32:
    """Return the network's probabilities for all windows, [windows, outputs, FRAMES, PITCHES]."""
    device = next(network.parameters()).device
    parts = torch.from_numpy(batch.audio).split(64)
    return np.concatenate([network.predict(part.to(device).float()).cpu() for part in parts])


def average_precision(
    probabilities: F32, head: str, targets: Targets[NDArray[np.uint8]], frames: slice | int
) -> float:
    """Return the average precision of a head in ``frames``, without elements whose labels are
    uncertain. probabilities: [windows, FRAMES, PITCHES]."""
    unknown = targets.onset_unknown if head == "onset" else targets.frame_unknown
    threshold = 0 if head == "frame" else ONSET_SCALE // 2
    labelled = unknown[:, frames] == 0
    truth = getattr(targets, head)[:, frames] > threshold
    return frame_average_precision(probabilities[:, frames][labelled], truth[labelled])


def family_metrics(
    config: ModelConfig, predictions: dict[str, F32], families: Windows
) -> dict[str, float]:
    """Return metrics of the frames from a window's middle to 200 ms before its end.

    Args:
        predictions: probabilities of each family, [windows, outputs, FRAMES, PITCHES].

    Returns:
        ``frame_ap:NAME``, ``onset_ap:NAME``: average precision for each family with notes.
        ``families``: the mean of all these average precisions.
        ``false_onsets_min:NAME``: false onsets per minute for each family without notes.
    """
    lookahead = int(0.2 * config.sample_rate / HOP)
    frames = slice(CENTRE_FRAME, FRAMES - lookahead)
    metrics: dict[str, float] = {}
    for name, (_, targets) in families.items():
        if not targets.frame.any():
            onset = predictions[name][:, config.heads.index("onset"), frames]
            inner = onset[:, 1:-1]
            peaks = (inner > 0.5) & (inner >= onset[:, :-2]) & (inner > onset[:, 2:])
            minutes = onset.shape[0] * onset.shape[1] * HOP / config.sample_rate / 60
            metrics[f"false_onsets_min:{name}"] = float(peaks.sum()) / minutes
            continue
        for head in ("frame", "onset"):
            of_head = predictions[name][:, config.heads.index(head)]
            metrics[f"{head}_ap:{name}"] = average_precision(of_head, head, targets, frames)
    metrics["families"] = float(np.nanmean([metrics[key] for key in metrics if "_ap:" in key]))
    return metrics
