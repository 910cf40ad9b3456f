"""Fit the onset classifier: ``python -m training.shipping.onsets --write``.

Its examples are the onset peaks that the trained network shows (``service.notes.onsets``): on
scores rendered with held-out instruments, since it is too good at those of its training; on made-up
tones; in speech, drums and noise, where every peak is false; and with ``--real DIR`` on the
training split of real recordings with scores, as they are and in other rooms. They come from
streams with the full look-ahead and from the windows of the anytime mode.
``training.shipping.tune`` then chooses the thresholds on other pieces.
"""

import logging
import sys
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.config import HOP
from model.transcriber import TranscriptionModel
from service.engine.engine import Engine
from service.notes import onsets
from service.notes.onsets import INPUTS, OnsetClassifier
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import ONSET_TOLERANCE_S, NoteList, note_list
from training.music.notes import nearest
from training.music.synth.acoustics.surroundings import load_backgrounds
from training.music.synth.config import SynthConfig
from training.music.synth.tones import tones
from training.shipping.pieces import (
    Material,
    Truth,
    full_age,
    known_truth,
    lookahead_probabilities,
    note_heads,
    recorded_material,
    rendered_material,
    run_windows,
)
from training.shipping.tune import Chooser, command

logger = logging.getLogger(__name__)

SEED = 12  # of the rendered pieces; 11 are those of tune and early
RADIUS = TrackerSettings().onset_radius_frames
ANYTIME_SHARE = 0.1  # of each piece: a window every hop takes long
SPEECH, DRUMS, NOISE, TONES = 2.0, 0.4, 0.4, 3.0  # stretches of each, for a rendered piece
PACES = (0.65, 1.5)
"""Of the voices: far from those that the network was trained on, so that it hears new ones."""
KEPT = 0.3  # of the peaks that successive windows show again
LEAST_PEAKS = 500  # that are notes
HIDDEN = (64, 32)
DROPOUT = 0.1
EPOCHS, BATCH = 20, 512
RATE, WEIGHT_DECAY = 5e-3, 0.05
DIGITS = 4  # significant ones, of the weights in the card


class Examples(NamedTuple):
    """Onset peaks: what the classifier reads, [n, INPUTS], and whether a note begins, [n]."""

    inputs: NDArray[np.float64]
    begins: NDArray[np.bool_]


def of_stream(probabilities: NDArray[np.float32], heads: tuple[str, ...], truth: Truth) -> Examples:
    """The peaks of a stream with its full look-ahead, [heads, frames, PITCHES]."""
    seen = np.pad(probabilities, ((0, 0), (onsets.HISTORY, onsets.AFTER), (0, 0)))
    onset = probabilities[heads.index("onset")]
    at, pitch = onsets.peaks(onset, RADIUS, onsets.CANDIDATE).nonzero()
    known = np.full(len(at), onsets.AFTER)  # silence follows the stream
    rows = onsets.cell_rows(heads)
    return _labelled(
        onsets.surroundings(seen, rows, onsets.HISTORY + at, pitch, known), at, pitch, truth
    )


def of_windows(
    engine: Engine, audio: NDArray[np.float32], truth: Truth, rng: np.random.Generator
) -> Examples:
    """Peaks of all ages that the anytime mode's windows show, a share of them at random."""
    heads, rows = note_heads(engine.config.heads)
    onset, cell_rows = heads.index("onset"), onsets.cell_rows(heads)
    last_age = full_age(engine.config)
    columns = RADIUS + last_age + 1  # the first only show whether the next is a peak
    frames = onsets.WindowFrames(len(heads))
    found: list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]] = []

    def take(newest: int, window: NDArray[np.float32]) -> None:
        if window.shape[1] < columns:
            return  # after the end
        here = window[rows]
        peaks = onsets.peaks(here[onset], RADIUS, onsets.CANDIDATE)[RADIUS:]
        peaks &= rng.random(peaks.shape) < KEPT
        at, pitch = peaks.nonzero()
        known = np.minimum(onsets.AFTER, last_age - at)
        seen = frames.around(here[:, RADIUS:])
        inputs = onsets.surroundings(seen, cell_rows, onsets.HISTORY + at, pitch, known)
        found.append((inputs, newest - last_age + at, pitch))

    run_windows(engine, audio, columns, last_age, take)
    inputs, frame, pitch = (np.concatenate(column) for column in zip(*found, strict=True))
    inside = (frame >= 0) & (frame < len(truth.unknown))
    return _labelled(inputs[inside], frame[inside], pitch[inside], truth)


def _labelled(
    inputs: NDArray[np.float64], frame: NDArray[np.int64], pitch: NDArray[np.int64], truth: Truth
) -> Examples:
    """Those whose truth is known."""
    at_s = np.asarray(frame * truth.frame_s, np.float64)
    begins = nearest(truth.notes.onset_s, truth.notes.pitch, at_s, pitch, ONSET_TOLERANCE_S) >= 0
    known = truth.knows(at_s, pitch)
    return Examples(inputs[known], begins[known])


def fit(examples: Examples, seed: int = 0) -> OnsetClassifier:
    """A classifier of the examples; the mean and the spread of its inputs are in its weights."""
    torch.manual_seed(seed)
    mean, spread = examples.inputs.mean(axis=0), examples.inputs.std(axis=0) + 1e-2
    inputs = torch.tensor((examples.inputs - mean) / spread, dtype=torch.float32)
    begins = torch.tensor(examples.begins, dtype=torch.float32)
    layers: list[nn.Module] = []
    for before, after in pairwise((INPUTS, *HIDDEN)):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(DROPOUT)]
    network = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 1))
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            logits = network(inputs[rows])[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, begins[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    weights = [layer.weight.detach().double().numpy() for layer in linear]
    biases = [layer.bias.detach().double().numpy() for layer in linear]
    biases[0] = biases[0] - weights[0] @ (mean / spread)
    weights[0] = weights[0] / spread
    return OnsetClassifier(
        tuple(
            (tuple(_rounded(row) for row in rows), _rounded(bias))
            for rows, bias in zip(weights, biases, strict=True)
        )
    )


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values)


def unmusical(synth: SynthConfig, rate: int, pieces: int, seconds: float) -> Material:
    """Audio at the model's rate in which no note begins, and that truth; nothing if ``synth`` has
    no recorded sounds. The numbers of stretches are proportional to that of the pieces."""
    sounds = load_backgrounds(synth.root, rate)
    if sounds is None:
        return
    rng = np.random.default_rng(SEED)
    length = round(seconds * rate)
    silent = known_truth(note_list(np.zeros((0, 4))), length, rate)
    for _ in range(round(SPEECH * pieces) if sounds.voices else 0):
        yield sounds.talk(length, rng, PACES), silent
    for _ in range(round(DRUMS * pieces) if sounds.kits else 0):
        yield sounds.drums(length, rng), silent
    for _ in range(round(NOISE * pieces)):
        yield sounds.noise(length, rng), silent


def made_up(rate: int, pieces: int, seconds: float) -> Material:
    """Stretches of tones at the model's rate, TONES times as many as pieces."""
    rng = np.random.default_rng(SEED)
    length = round(seconds * rate)
    for _ in range(round(TONES * pieces)):
        audio, onset_s, pitch = tones(length, rate, rng)
        keys = pitch.astype(np.int64)
        notes = NoteList(onset_s, onset_s, keys, np.zeros_like(keys))
        yield audio, known_truth(notes, length, rate)


def classifier_for(
    transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
) -> OnsetClassifier | None:
    """The classifier for a model, from sounds without notes, made-up tones, rendered pieces and,
    if ``synth.real_root`` is given, real recordings; None if fewer than LEAST_PEAKS are notes.

    pieces: number of rendered pieces; seconds: length of each, and of each recording at most.
    """
    heads, rows = note_heads(transcriber.config.heads)
    rate = transcriber.config.sample_rate
    rng = np.random.default_rng(SEED)
    parts: list[Examples] = []
    length = int(seconds * rate) // HOP * HOP
    material = chain(
        unmusical(synth, rate, pieces, seconds),
        made_up(rate, pieces, seconds),
        rendered_material(synth, rate, pieces, seconds, SEED),
        recorded_material(synth, rate, length, SEED, "train", elsewhere=True),
    )
    with Engine(transcriber) as engine:
        for number, (audio, truth) in enumerate(material, start=1):
            for probabilities in lookahead_probabilities(engine, audio, rows):
                parts.append(of_stream(probabilities, heads, truth))
            parts.append(of_windows(engine, audio[: int(ANYTIME_SHARE * len(audio))], truth, rng))
            logger.info("piece %d: %d peaks", number, sum(len(part.begins) for part in parts))
    examples = Examples(*map(np.concatenate, zip(*parts, strict=True)))
    if examples.begins.sum() < LEAST_PEAKS:
        logger.warning("%d notes are too few for an onset classifier", examples.begins.sum())
        return None
    return fit(examples)


def onset_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the classifier, without thresholds by age, which depend on it."""
    found = classifier_for(transcriber, synth, pieces, seconds)
    card = TrackerSettings.from_card(transcriber.card)
    return replace(card, onset_classifier=found, early_onset_thresholds=())


CHOOSER = Chooser(onset_settings, pieces=40, seconds=40.0, heads=frozenset(onsets.HEADS))


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.onsets", __doc__, CHOOSER, arguments)


if __name__ == "__main__":
    sys.exit(main())
