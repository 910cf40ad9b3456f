"""Choices after training: the interpolation of the weights, and the settings of the note tracker.

Weights on the straight line between the initial and the tuned weights often preserve the accuracy
of the initial weights on other music and have most of the gain of the tuned weights (WiSE-FT,
Wortsman et al., CVPR 2022, arXiv:2109.01903).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from model.config import INSTRUMENTS, SAMPLE_RATE
from model.instruments import UNKNOWN
from model.transcriber import TranscriptionModel
from service.engine.local import LocalEngine
from service.notes.tracker_settings import TrackerSettings
from training.evaluation.real import interval
from training.evaluation.truth import labelled_figures, truth_of
from training.fine_tune.collection import UserRecording
from training.fine_tune.task import OWN
from training.music.families import FAMILIES, Passage, recorded_passage
from training.music.metrics import FIGURES, estimated_notes
from training.music.transcribe import transcribe_array
from training.shipping.evidence import STREAM, Evidence, PredictedPassage, predict_passages
from training.shipping.tune import settings_by_evidence

FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)  # 0: the initial weights, 1: the tuned weights
MAX_MEAN_LOSS = 0.005  # maximum loss in the mean score of the validation families
MAX_FAMILY_LOSS = 0.02  # maximum loss in the score of one family, measured on few passages
NEGLIGIBLE = 0.005  # gain on the user's recordings that does not justify a larger factor
PASSAGE_S = 20.0
MIN_PASSAGE_S = 1.0
FALSE_NOTES = "false_notes_min"

Passages = Mapping[str, Sequence[Passage]]
Figures = dict[str, list[dict[str, float]]]  # figures of each passage, by group


def own_passages(recordings: Sequence[UserRecording]) -> list[Passage]:
    """Cut recordings into passages of MIN_PASSAGE_S to PASSAGE_S."""
    length = int(PASSAGE_S * SAMPLE_RATE)
    return [
        recorded_passage(own.recording, start, min(length, len(own.recording.audio) - start))
        for own in recordings
        for start in range(0, len(own.recording.audio), length)
        if len(own.recording.audio) - start >= MIN_PASSAGE_S * SAMPLE_RATE
    ]


def interpolated(
    initial: TranscriptionModel, tuned: TranscriptionModel, factor: float
) -> TranscriptionModel:
    """Return a float32 network with interpolated weights."""
    between = TranscriptionModel(initial.config, initial.card).eval()
    old, new = initial.state_dict(), tuned.state_dict()
    between.load_state_dict(
        {name: torch.lerp(old[name].float(), new[name].float(), factor) for name in old}
    )
    return between


def choose_factor(
    initial: TranscriptionModel, tuned: TranscriptionModel, passages: Passages
) -> tuple[float, dict[float, dict[str, float]]]:
    """Return the factor of the interpolation, and the mean scores by factor and group.

    A factor is allowed if the other families lose at most MAX_MEAN_LOSS in their mean and
    MAX_FAMILY_LOSS each. The result is the smallest allowed factor whose score on the user's
    recordings is at most NEGLIGIBLE below that of the best allowed factor.
    """
    settings = TrackerSettings.from_card(initial.card)
    table = {}
    for factor in FACTORS:
        predicted = predict_passages(interpolated(initial, tuned, factor), passages)
        table[factor] = {
            group: float(np.mean([passage.score(settings) for passage in of_group]))
            for group, of_group in predicted.items()
        }
    others = [group for group in table[0.0] if group != OWN]
    allowed = []
    for factor, scores in table.items():
        losses = [table[0.0][group] - scores[group] for group in others] or [0.0]
        if np.mean(losses) <= MAX_MEAN_LOSS and max(losses) <= MAX_FAMILY_LOSS:
            allowed.append(factor)
    best = max(table[factor].get(OWN, 0.0) for factor in allowed)
    return next(f for f in allowed if table[f].get(OWN, 0.0) >= best - NEGLIGIBLE), table


def choose_settings(network: TranscriptionModel, passages: Passages) -> TrackerSettings:
    """Return the card's settings, corrected for the family of the user's instrument
    (``training.shipping.tune``). They are unchanged if the instrument belongs to no family, or if
    fewer than two passages have notes."""
    predicted = predict_passages(network, passages)
    own = predicted.pop(OWN, [])
    start = TrackerSettings.from_card(network.card)
    family = detected_family(own, start)
    if family is None or len(own) < 2:
        return start
    halves = {family: own[::2]}, {family: own[1::2]}
    rendered = {family: predicted[family]} if family in predicted else {}
    return settings_by_evidence(Evidence(rendered, halves), start)


def detected_family(own: Sequence[PredictedPassage], settings: TrackerSettings) -> str | None:
    """Return the family of the most frequent instrument among the detected notes, or None if this
    instrument is unknown or belongs to no family."""
    counts: Counter[int] = Counter()
    for passage in own:
        counts.update(passage.detected_notes(settings).instrument.tolist())
    number = counts.most_common(1)[0][0] if counts else UNKNOWN
    name = "" if number == UNKNOWN else INSTRUMENTS[number]
    return next((family for family, (classes, _) in FAMILIES.items() if name in classes), None)


def figures(network: TranscriptionModel, passages: Passages) -> Figures:
    """Return the figures of every passage, transcribed by the service's stream: the F1 of frames,
    onsets and onsets with offsets, or false notes per minute if the passage has no notes."""
    result: Figures = {}
    with LocalEngine(network) as engine:
        for group, of_group in passages.items():
            result[group] = [_figures(engine, passage) for passage in of_group]
    return result


def _figures(engine: LocalEngine, passage: Passage) -> dict[str, float]:
    notes = estimated_notes(transcribe_array(passage.audio, SAMPLE_RATE, engine, STREAM).notes)
    truth = truth_of(passage)
    if not len(truth.notes):
        return {FALSE_NOTES: 60 * len(notes) * SAMPLE_RATE / len(passage.audio)}
    return dict(zip(FIGURES[1:], labelled_figures(truth, notes), strict=True))


def comparison(before: Figures, after: Figures) -> list[dict[str, Any]]:
    """Return rows of ``group``, ``figure``, number of ``passages``, the means ``before`` and
    ``after``, their ``difference`` and its 95 % bootstrap ``interval`` over the passages. The last
    rows pool all families."""
    families = [group for group in before if group != OWN]
    groups = {group: [group] for group in before}
    if families:
        groups["all families"] = families
    rows = []
    for name, members in groups.items():
        for figure in (*FIGURES[1:], FALSE_NOTES):
            old, new = (
                [values[figure] for group in members for values in by[group] if figure in values]
                for by in (before, after)
            )
            if old:
                gains = np.subtract(new, old).tolist()
                rows.append(
                    {
                        "group": name,
                        "figure": figure,
                        "passages": len(old),
                        "before": float(np.mean(old)),
                        "after": float(np.mean(new)),
                        "difference": float(np.mean(gains)),
                        "interval": interval(gains),
                    }
                )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the rows of a comparison as text."""
    lines = [
        f"{'':20}{'figure':18}{'passages':>9}{'before':>8}{'after':>8}{'gain':>8}"
        "   95 % interval over passages"
    ]
    for row in rows:
        ends = row["interval"]
        between = f"{ends[0]:+.3f} to {ends[1]:+.3f}" if ends else "-"
        lines.append(
            f"{row['group']:20}{row['figure']:18}{row['passages']:9}{row['before']:8.3f}"
            f"{row['after']:8.3f}{row['difference']:+8.3f}   {between}"
        )
    return "\n".join(lines)
