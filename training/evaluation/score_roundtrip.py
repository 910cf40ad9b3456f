"""Round trip of scores: performs, renders and transcribes them, and quantises the result.

Held-out instruments play the start of each MusicXML file in a folder, with a tempo curve and
without a room. The service transcribes the audio. Then the metre, the key and the quantised onsets
are compared with the original.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from model.config import SAMPLE_RATE
from service.engine.local import LocalEngine
from service.engine.runners import EngineModel
from service.notes.events import Note
from service.protocol.options import StreamOptions
from service.score.analysis import analyse
from service.score.quantise import quantise_notes
from service.score.sheet import load
from training.arrays import F64, Rng
from training.music.metrics import estimated_notes, matched_onsets
from training.music.notes import Notes, notes_of
from training.music.synth.bank import HELD_OUT, load_bank
from training.music.synth.config import SynthConfig
from training.music.synth.perform import orchestrate
from training.music.synth.render import render
from training.music.synth.scores import Piece
from training.music.transcribe import transcribe_array

STRINGS = {"violin": 40, "viola": 41, "cello": 42, "violoncello": 42}  # a piano plays other parts
BEATS_BPM = (60, 120)
LEAD_S, SPREAD, JITTER_S = 0.5, 0.03, 0.01
ENDINGS = (".musicxml", ".xml", ".mxl")


@dataclass(frozen=True)
class PerformedScore:
    """Start of a score: its notes in seconds, and their onsets in quarter notes of the score."""

    notes: Notes
    quarter: F64
    programs: tuple[int, ...]
    beats_per_bar: int
    subdivision: int
    bar_quarters: float
    fifths: int


def evaluate_scores(
    transcriber: EngineModel,
    options: StreamOptions,
    config: SynthConfig,
    folder: Path,
    seconds: float,
) -> dict[str, Any]:
    """Return the figures of each score under ``scores`` (see ``compare``), their means and their
    number, ``count``. Skip files that cannot be read, and print their names. Raises ValueError if
    no score can be read."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    bank = load_bank(config.root, config.cache)
    scores: dict[str, dict[str, float]] = {}
    with LocalEngine(transcriber) as engine:
        for number, path in enumerate(paths):
            rng = np.random.default_rng((0, number))
            try:
                played = perform_score(path, seconds, rng)
            except Exception as error:  # partitura does not document its exceptions
                print(f"cannot read {path.name}: {error}", flush=True)
                continue
            ensemble = "string quartet" if min(played.programs) >= 40 else "solo piano"
            silent = np.zeros((0, 2))
            piece = Piece(ensemble, False, "", played.programs, played.notes, silent)
            notes, voices, pedal = orchestrate(bank, piece, played.notes, silent, rng, HELD_OUT)
            audio = render(bank, notes, voices, seconds, 0.0, rng, pedal).audio
            transcription = transcribe_array(audio, SAMPLE_RATE, engine, options)
            scores[path.name] = compare(played, transcription.notes)
            print(f"{path.name:40}{scores[path.name]}", flush=True)
    if not scores:
        raise ValueError(f"no readable score ({', '.join(ENDINGS)}) in {folder}")
    names = next(iter(scores.values()))
    means = {name: float(np.mean([score[name] for score in scores.values()])) for name in names}
    return {**means, "count": len(scores), "scores": scores}


def perform_score(path: Path, seconds: float, rng: Rng) -> PerformedScore:
    """Perform the first ``seconds`` of a score. The tempo changes slightly every two beats."""
    with catch_warnings():
        simplefilter("ignore")  # partitura warns about directions that it cannot read
        parts = load("partitura").load_score(str(path)).parts
    arrays = [
        part.note_array(include_key_signature=True, include_time_signature=True) for part in parts
    ]
    programs = [STRINGS.get((part.part_name or "").lower().split(" ")[0], 0) for part in parts]
    table = np.concatenate(arrays)
    part_of = np.repeat(np.arange(len(parts)), [len(array) for array in arrays])
    start = table["onset_quarter"].min()
    above, below = (int(np.median(table[name])) for name in ("ts_beats", "ts_beat_type"))
    compound = below >= 8 and above % 3 == 0 and above > 3
    beat_quarters = 1.5 if compound else 4 / below
    beat_s = 60 / math.exp(rng.uniform(*np.log(BEATS_BPM)))
    knots = np.arange(0, seconds * 8, 2.0)  # in beats
    lengths_s = 2 * beat_s * np.exp(rng.normal(0, SPREAD, len(knots)))
    played_s = LEAD_S + np.append(0, np.cumsum(lengths_s[:-1]))

    def seconds_of(quarter: F64) -> F64:
        return np.interp((quarter - start) / beat_quarters, knots, played_s)

    onset = seconds_of(table["onset_quarter"]) + rng.normal(0, JITTER_S, len(table))
    offset = seconds_of(table["onset_quarter"] + 0.9 * table["duration_quarter"])
    kept = (table["duration_quarter"] > 0) & (onset < seconds - 0.5)
    order = np.flatnonzero(kept)[np.argsort(onset[kept], kind="stable")]
    notes = notes_of(
        onset[order],
        np.minimum(np.maximum(offset, onset + 0.05), seconds)[order],
        table["pitch"][order],
        velocity=rng.normal(70, 8, len(order)).clip(30, 110),
        part=part_of[order],
    )
    return PerformedScore(
        notes=notes,
        quarter=table["onset_quarter"][order].astype(float),
        programs=tuple(programs),
        beats_per_bar=above // 3 if compound else above,
        subdivision=3 if compound else 2,
        bar_quarters=4 * above / below,
        fifths=int(np.median(table["ks_fifths"][order])),
    )


def compare(played: PerformedScore, detected: list[Note]) -> dict[str, float]:
    """Return the figures of one score.

    Returns:
        ``metre``, ``key``: 1.0 if the metre and the key signature are right.
        ``notes_found``: recall of the played notes.
        ``place``: share of matched notes with the right position in the score. A constant shift of
        all notes is allowed.
        ``step``: share of matched notes at the right distance from the previous matched note.
    """
    notes, estimated = played.notes, estimated_notes(detected)
    matched = matched_onsets(notes, estimated)
    played_rows, rows = matched[np.argsort(matched[:, 0])].T
    analysis = analyse(detected)
    beats = analysis.beats
    pitch = estimated.pitch.astype(int)
    quantised = quantise_notes(estimated.onset, estimated.offset, pitch, beats)
    quarters = np.array([float(note.onset * beats.quarters) for note in quantised])
    same_bar = float(beats.beats_per_bar * beats.quarters) == played.bar_quarters
    same_beats = beats.beats_per_bar == played.beats_per_bar
    same_subdivision = beats.subdivision == played.subdivision
    true, quarters = played.quarter[played_rows], quarters[rows]
    shift = np.unique(np.round((quarters - true) * 24), return_counts=True)[1].max(initial=0)
    step = np.count_nonzero(np.abs(np.diff(quarters) - np.diff(true)) < 1 / 48)
    return {
        "metre": float(analysis.steady and same_subdivision and (same_bar or same_beats)),
        "key": float(analysis.key.fifths == played.fifths),
        "notes_found": len(matched) / len(notes),
        "place": float(shift / max(1, len(quarters))),
        "step": float(step / max(1, len(quarters) - 1)),
    }
