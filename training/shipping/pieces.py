"""Rendered pieces and recordings with scores, for judging the note tracker's settings.

Where the score of a recording leaves open whether a note begins, found and missed notes do not
count. Nor does a score say when keys are released, but players hold most notes for about as long as
they are written. That is a coarse measure of ends, and the recordings are nearly all Bach without
pedal, but it is one of real ends: rendered pieces hardly tell whether a note ends after one frame
or seven below its threshold, and recordings do (`RESULTS.md`). So it counts little, and decides
where rendered pieces do not.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES, ModelConfig
from model.transcriber import TranscriptionModel
from service.audio.tuning import Tuner
from service.engine.batching import Priority
from service.engine.engine import Engine
from service.engine.framer import Framer, OnFrames
from service.engine.windows import WindowSchedule
from service.notes.score import Score
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.session.transcribe import transcribe_array
from training.music.metrics import NoteList, estimated_notes, matched_onsets, rendered_notes
from training.music.notes import ONSET_UNKNOWN
from training.music.recordings import PCM_SCALE
from training.music.scored.corpus import ScoredRecording, load_recordings
from training.music.synth.acoustics.augment import augment, load_surroundings
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import validation_pieces

LOOKAHEADS_MS = (100.0, 200.0)
"""Look-aheads at which settings are judged."""
ANYTIME = StreamOptions(lookahead_ms=200.0)


def full_age(config: ModelConfig) -> int:
    """The age in frames at which the anytime mode has a frame's full look-ahead."""
    return ANYTIME.lookahead_hops(config.sample_rate) - config.newest_hops


def note_heads(heads: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The heads that the tracker reads, and their rows."""
    rows = [row for row, head in enumerate(heads) if not head.startswith("instrument:")]
    return tuple(heads[row] for row in rows), rows


def lookahead_probabilities(
    engine: Engine, audio: NDArray[np.float32], rows: list[int]
) -> Iterator[NDArray[np.float32]]:
    """[heads, frames, PITCHES] of audio at the model's rate, for each of LOOKAHEADS_MS."""
    for lookahead in LOOKAHEADS_MS:
        options = StreamOptions(lookahead_ms=lookahead, block_frames=8)
        heard = transcribe_array(audio, engine.config.sample_rate, engine, options)
        yield heard.probabilities[rows]


def tracked(
    settings: TrackerSettings,
    probabilities: NDArray[np.float32],
    frame_s: float,
    heads: tuple[str, ...],
) -> NoteList:
    """Notes of [heads, frames, PITCHES]."""
    tracker = NoteTracker(settings, frame_s, heads)
    score = Score()
    known = (*tracker.push(probabilities), *tracker.finish(probabilities.shape[1]))
    score.add(event for _, event in known)
    return estimated_notes(score.notes)


def run_windows(
    engine: Engine, audio: NDArray[np.float32], columns: int, last_age: int, take: OnFrames
) -> None:
    """Calls ``take`` with the newest frame and the probabilities of every window in anytime mode,
    [heads, columns, PITCHES]: of audio at the model's rate, a window every hop."""
    files = Priority.FILE

    async def run() -> None:
        schedule = WindowSchedule(engine.config.newest_hops, 1, columns - 1, last_age)
        framer = Framer(engine, files, schedule, 0, 0, engine.settings.limit(files), take, Tuner())
        await framer.write(audio)
        await framer.finish()
        framer.close()

    asyncio.run(run())


@dataclass(frozen=True)
class Truth:
    """The notes that a score determines."""

    notes: NoteList
    """As written."""
    unknown: NDArray[np.bool_]
    """(frames, PITCHES), where the score leaves open whether a note begins."""
    frame_s: float

    def knows(self, onset_s: NDArray[np.float64], pitch: NDArray) -> NDArray[np.bool_]:
        """Whether the score determines each of these onsets."""
        frame = np.clip(np.rint(onset_s / self.frame_s).astype(int), 0, len(self.unknown) - 1)
        return ~self.unknown[frame, pitch]


def known_truth(notes: NoteList, length: int, rate: int) -> Truth:
    """The truth of so many samples in which no other note begins."""
    return Truth(notes, np.zeros((length // HOP + 1, PITCHES), bool), HOP / rate)


Material = Iterator[tuple[NDArray[np.float32], Truth]]
"""Audio at the model's rate and its onsets."""


class Pieces:
    """Pieces that settings are judged on, as the network hears them at each of LOOKAHEADS_MS."""

    ends = 0.075
    """What onset+offset F1 counts, where onset F1 counts 1."""

    def __init__(self, transcriber: TranscriptionModel, material: Material) -> None:
        self.frame_s = HOP / transcriber.config.sample_rate
        self.heads, rows = note_heads(transcriber.config.heads)
        with Engine(transcriber) as engine:
            self.pieces = [
                (probabilities, truth)
                for audio, truth in material
                for probabilities in lookahead_probabilities(engine, audio, rows)
            ]

    def tracked(self, settings: TrackerSettings) -> Iterator[tuple[Truth, NoteList]]:
        """The truth of each piece and the notes found."""
        for probabilities, truth in self.pieces:
            yield truth, tracked(settings, probabilities, self.frame_s, self.heads)

    def objective(self, settings: TrackerSettings) -> float:
        """Mean score of the pieces."""
        frames = [probabilities.shape[1] for probabilities, _ in self.pieces]
        tracked = zip(self.tracked(settings), frames, strict=True)
        return float(np.mean([self.score(*pair, count) for pair, count in tracked]))

    def score(self, truth: Truth, found: NoteList, frames: int) -> float:
        """Onset F1 and some of onset+offset F1 of a piece of so many frames."""
        return known_f1(truth, found) + self.ends * known_f1(truth, found, offsets=True)

    def onset_errors_s(self, settings: TrackerSettings) -> NDArray[np.float64]:
        """Delays of the found notes, in seconds, over all pieces."""
        delays = []
        for truth, found in self.tracked(settings):
            matched = matched_onsets(truth.notes, found)
            delays.append(found.onset_s[matched[:, 1]] - truth.notes.onset_s[matched[:, 0]])
        return np.concatenate(delays)


def rendered_material(
    synth: SynthConfig, rate: int, pieces: int, seconds: float, seed: int
) -> Material:
    """So many rendered pieces, which ``seed`` chooses."""
    for piece in validation_pieces(synth, pieces, seconds, seed):
        yield piece.audio, known_truth(rendered_notes(piece.notes), len(piece.audio), rate)


def recorded_material(
    synth: SynthConfig, rate: int, length: int, seed: int, split: str, elsewhere: bool
) -> Material:
    """The first ``length`` samples of the recordings of a split, if ``synth.real_root`` is given.

    elsewhere: each also in another room and through other microphones, by ``seed``: most recordings
    with scores are close ones of one piano.
    """
    if synth.real_root is None:
        return
    surroundings = load_surroundings(synth.root, rate) if elsewhere else None
    rng = np.random.default_rng(seed)
    for recording in load_recordings(synth.real_root, synth.cache, split, synth.real_left_out):
        audio = recording.audio[:length].astype(np.float32) / np.float32(PCM_SCALE)
        truth = truth_of(recording, -(-len(audio) // HOP), HOP / rate)
        yield audio, truth
        if surroundings is not None:
            yield augment(audio, rate, rng, surroundings=surroundings), truth


def truth_of(recording: ScoredRecording, frames: int, frame_s: float) -> Truth:
    """The onsets in the first ``frames`` of a recording."""
    unknown = np.zeros((frames, PITCHES), bool)
    for begin_s, end_s, pitch, what in recording.unknown:
        if int(what) & ONSET_UNKNOWN:
            first, last = (max(0, round(second / frame_s)) for second in (begin_s, end_s))
            unknown[first:last, slice(None) if pitch < 0 else int(pitch)] = True
    inside = recording.notes.onset < frames * frame_s
    return Truth(rendered_notes(recording.notes.where(inside)), unknown, frame_s)


def known_f1(truth: Truth, notes: NoteList, offsets: bool = False) -> float:
    """F1 of the notes whose onsets the score determines, if ``offsets`` by their ends as well; 0 if
    there are none and none is found."""
    written, found = matched_onsets(truth.notes, notes, offsets).T
    written_known = truth.knows(truth.notes.onset_s, truth.notes.pitch)
    hits = int(written_known[written].sum())
    wrong = np.ones(len(notes), bool)
    wrong[found] = False
    wrong &= truth.knows(notes.onset_s, notes.pitch)
    total = int(written_known.sum()) + hits + int(wrong.sum())
    return 2 * hits / max(1, total)
