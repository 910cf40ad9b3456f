"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

**Several lines**, or if nothing else is considered: with n the newest frame and r ONSET_RADIUS, a
pitch

* begins at frame n - r if the onset probability peaks above its threshold there and the frame
  probability confirms it by frame n;
* is struck again if it already sounds and such a peak occurs: the old note ends where the evidence
  that it sounds was greatest (``service.notes.base_tracker``), or else where the new one begins;
* ends by that evidence, of the frames up to n - r.

Several play for MEMORY_FRAMES after a second pitch has been heard for SECOND_FRAMES: one that is
neither near the likeliest nor in its harmonic series, with a frame probability of SECOND_THRESHOLD.
A piano counts as several: its notes ring on.

**A single line** is the best path through its frames. In each frame one pitch sounds, or none. Let
y and o be the probabilities of the frame and onset heads. A path gains g in a frame f of pitch p,
and pays c if p begins there:

    g[f, p] = log-odds of (y[f, p] + SPREAD (y[f, p - 1] + y[f, p + 1])) + bias     (silence: 0)
    c[f, p] = cost - onset_weight max(0, log-odds of o[f, p] - log-odds of LEAST_ONSET)

SPREAD keeps a vibrato together; falling silent is free; c is at least LEAST_COST. The bias grows
with the share of the latest frames with a pitch in which the network is in doubt: it is surer of
the players that it knows, and their notes end sooner after its doubt.

With V[f, p] the gain of the best path through f ... f + A that is in p at f (A: AHEAD_FRAMES), the
note that sounds, p, gives way to another pitch q or to silence, whichever is best, if

    V[f, q] - c[f, q] > V[f, p]        or        V[f, silence] > V[f, p]

The past matters through the sounding note alone: each step is final once frame f + A is known. Out
of silence a note begins only if y, or that of a neighbouring pitch, has a mean of LEAST_MEAN in
these frames: much of speech has less. A note begins at the peak of its onset head in the r frames
after its first, if there is one, and is struck again at peaks of at least ``again_threshold``. When
a second line enters, the frames from n - A on are undecided, and several are heard in them after
all; when it falls silent, the path goes on from the last frame that is decided.

Events are returned in the order in which they become known: a note may end before beginnings of
other pitches that were returned earlier. Events of one pitch are in time order. Live events cannot
be retracted, so a note that turns out to be short gets the minimum length.
"""

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import WAIT, Tracker
from service.notes.events import NoteEvent
from service.notes.frames import OVERTONES, LatestFrames, frame_confirms_onset, peaks
from service.notes.resume import ResumePoint
from service.notes.tracker_settings import ONSET_RADIUS, LineSettings, TrackerSettings

SECOND_THRESHOLD, SECOND_FRAMES = 0.5, 5
MEMORY_FRAMES = 172  # how surely a player is heard is judged by as many, too
AHEAD_FRAMES = 8
LEAST_FRAMES = 6  # of a note

PIANO = "instrument:piano"
PIANO_SHARE = 0.3
_NEAR = 2  # semitones: a glide, or a vibrato between two pitches
_APART = np.abs(np.subtract.outer(np.arange(PITCHES), np.arange(PITCHES)))
_UNRELATED = (_APART > _NEAR) & ~np.isin(_APART, OVERTONES)

SPREAD = np.float32(0.3)
LEAST_ONSET = np.float32(0.05)
LEAST_COST = np.float32(1.0)
LEAST_MEAN = 0.15
HEARD, SURE = 0.1, 0.5
"""Frame probability of the likeliest pitch from which on it is heard, and without doubt."""
DOUBT = (0.2, 0.6)
"""Shares of doubtful frames up to which a player is known well, and from which on hardly."""
PRIOR = (0.3, 20)  # doubt before the first frames, and how many of these it counts for
_LEAST = np.float32(5e-3)  # probabilities below it are alike

_F32 = NDArray[np.float32]
_Paths = tuple[list[int], _F32, _F32, _F32]


class NoteTracker(Tracker):
    """Notes of a stream whose frames are each seen once, with their full look-ahead."""

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...]
    ) -> None:
        """With ``TrackerSettings.line``, single lines are read as such."""
        super().__init__(settings, frame_seconds, heads, weighed_after=ONSET_RADIUS)
        self._lines, self._line = None, settings.line or LineSettings()
        self._ahead, self.history_frames = ONSET_RADIUS, WAIT
        if settings.line is not None:
            self._lines = _MonophonyDetector(self._line, heads)
            self._ahead, self.history_frames = AHEAD_FRAMES, MEMORY_FRAMES + SECOND_FRAMES
        # A line's note begins so late that frames before these would not be weighed.
        self._held_frames = max(settings.min_note_frames, self._ahead - ONSET_RADIUS)
        self._past = self._ahead + ONSET_RADIUS  # frames before a block
        self.history_frames += self._past
        self._frames = LatestFrames(len(heads), self._past)
        self._first = 0  # frame that is known
        self._decided = -self._ahead
        self._now_several = self._lines is None
        self._several: list[bool] = []  # of the block, as the next two
        self._struck: dict[int, list[int]] = {}  # pitches by column
        self._paths: _Paths | None = None
        # Half a frame more than the wait itself: an onset may lie that far before its frame.
        self.on_delay_frames = self._ahead + 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, ONSET_RADIUS + WAIT)

    @property
    def decided_frames(self) -> int:
        return max(self._decided, self._resumed - self._ahead)

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        self._first = first_frame
        self._decided = first_frame - self._ahead
        super().resume(first_frame, point)

    def read(self, block: _F32, new: int) -> None:
        if self._lines is None:
            self._take(block, [True] * new)
        else:
            self._take(block, *self._lines.hear(block))

    def _take(
        self,
        block: _F32,
        several: list[bool],
        bias: _F32 | None = None,
    ) -> None:
        self._oldest = self._pushed - self._past
        self._known = self._frames.append(block)
        self._several = several
        frame, onset = self._known[self._frame], self._known[self._onset]
        struck = peaks(onset, ONSET_RADIUS, self.settings.least_onset_threshold)
        self._struck = {}
        if struck.any():
            struck &= frame_confirms_onset(frame, ONSET_RADIUS, self.settings.frame_on_threshold)
            for at, pitch in np.argwhere(struck).tolist():
                self._struck.setdefault(at, []).append(pitch)
        if bias is not None and not all(several):
            first = self._past - self._ahead
            self._paths = _best_paths(self._line, frame[first:], onset[first:], bias)

    def step(self) -> list[NoteEvent]:
        i = self._pushed - self._oldest - self._past
        self._now_several = several = self._several[i]
        decided = self._pushed + 1 - (ONSET_RADIUS if several else self._ahead)
        events: list[NoteEvent] = []
        if self._pushed >= self._resumed:
            for frame in range(max(0, self._decided), decided):
                events += (
                    self._step_polyphonic(frame) if several else self._step_monophonic(frame, i)
                )
        self._decided = max(self._decided, decided)
        if not several:  # the notes of a line sound as long as its path says
            for note in self._sounding.values():
                held = note.event.frame + self._held_frames
                note.fallen, note.best = 0.0, max(self._pushed + 1 - ONSET_RADIUS, held)
        elif self._pushed - ONSET_RADIUS >= self._first:  # no silence instead of unknown frames
            events += self._find_offsets()
        self._pushed += 1
        return events

    # -- several lines ----------------------------------------------------------------------------

    def _step_polyphonic(self, frame: int) -> list[NoteEvent]:
        """What peaks at the frame begin and end."""
        ends: list[NoteEvent] = []
        begins: list[tuple[float, int, float]] = []  # time in frames, pitch, probability
        for pitch in self._struck.get(frame - self._oldest, ()):
            note, chance = self._sounding.get(pitch), self._onset_probability(frame, pitch)
            lately = note and frame - note.event.frame < self.settings.min_note_frames
            if chance < self._least or lately:
                continue
            begin = self._onset_time(frame, pitch)
            begins.append((begin, pitch, chance))
            if note:
                ends.append(self._end_at_best(pitch, frame, begin))
        ends.sort(key=lambda event: (event.time_s, event.pitch))
        begins.sort(key=lambda begin: (self._seconds(begin[0]), begin[1]))
        return ends + [self._begin(frame, pitch, time, chance) for time, pitch, chance in begins]

    # -- a single line ----------------------------------------------------------------------------

    def _step_monophonic(self, frame: int, i: int) -> list[NoteEvent]:
        """What the i-th of the paths, which begins at the frame, begins and ends."""
        newest = max((note.event.frame for note in self._sounding.values()), default=-math.inf)
        if frame - newest < LEAST_FRAMES:
            return []
        if self._paths is None:
            return [self._end(pitch, frame, frame) for pitch in sorted(self._sounding)]
        pitches, sounding, silents, begun = self._paths
        silent, best, again = silents[i], int(begun[i].argmax()), self._line.again_threshold
        if not self._sounding:
            begins = begun[i, best] > silent and self._heard(frame, pitches[best])
            return self._begin_after(frame, pitches[best]) if begins else []
        notes = dict(zip(pitches, sounding[i].tolist(), strict=True))
        gains = {pitch: notes.get(pitch, -math.inf) for pitch in self._sounding}
        # There are others if several lines have left them.
        held, *others = sorted(gains, key=lambda pitch: (-gains[pitch], pitch))
        events = [self._end(other, frame, frame) for other in others]
        if begun[i, best] > max(gains[held], silent):
            events += self._begin_after(frame, pitches[best])
        elif silent > gains[held]:
            events.append(self._end(held, frame, frame))
        elif peaks(self._onsets(frame, held)[:, None], ONSET_RADIUS, again)[ONSET_RADIUS]:
            events += self._begin_after(frame, held)
        return events

    def _heard(self, frame: int, pitch: int) -> bool:
        """Whether a note out of silence is surely enough heard."""
        at = frame - self._oldest
        near = slice(max(0, pitch - 1), pitch + 2)
        values = self._known[self._frame, at : at + self._ahead + 1, near]
        return bool(values.max(axis=1).mean() >= LEAST_MEAN)

    def _begin_after(self, frame: int, pitch: int) -> list[NoteEvent]:
        """The note_on at the onset soon after a frame, or else there, and before it the note_off of
        the note that sounds until then."""
        near = self._onsets(frame, pitch)[ONSET_RADIUS:]
        time_frames = max(0.0, frame + self.settings.onset_correction_frames)
        if near.max() >= LEAST_ONSET:
            frame += int(near.argmax())
            time_frames = self._onset_time(frame, pitch)
        ends = [self._end(sounding, frame, time_frames) for sounding in list(self._sounding)]
        at = frame - self._oldest
        confidence = float(self._known[self._frame, at : at + ONSET_RADIUS + 1, pitch].max())
        return [*ends, self._begin(frame, pitch, time_frames, confidence)]

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """The last frames are read as the newest one was."""
        wait = ONSET_RADIUS if self._now_several else self._ahead
        silence = np.zeros((self._n_heads, wait, PITCHES), np.float32)
        bias = None if self._lines is None else self._lines.hear(silence)[1]
        self._take(silence, [self._now_several] * wait, bias)
        events = [event for _ in range(wait) for event in self.step()]
        return events + self.end_all(end_frame)


class _MonophonyDetector:
    """Hears whether more than one line has sounded lately, or mostly a piano; and how surely."""

    def __init__(self, settings: LineSettings, heads: tuple[str, ...]) -> None:
        self._settings = settings
        self._frame = heads.index("frame")
        self._piano = heads.index(PIANO) if PIANO in heads else None
        self._run = 0  # latest frames in a row in which a second pitch is heard
        # Of the latest frames: a second pitch lasts, any sounds, one of a piano, any is heard, and
        # surely.
        self._latest = deque([(False,) * 5] * MEMORY_FRAMES)
        self._counts = [0] * 5

    def hear(self, known: _F32) -> tuple[list[bool], _F32]:
        """Of the next n frames, [heads, n, 128]: whether several lines play, and the bias of notes,
        when each is the newest."""
        line, frame = self._settings, known[self._frame]
        rows, likeliest = np.arange(len(frame)), frame.argmax(axis=1)
        top = frame[rows, likeliest]
        sounds = top >= SECOND_THRESHOLD
        second = piano = sounds & False
        if sounds.any():
            others = np.where(_UNRELATED[likeliest], frame, 0).max(axis=1)
            second = others >= SECOND_THRESHOLD
            if self._piano is not None:
                piano = sounds & (known[self._piano, rows, likeliest] >= 0.5)
        flags = second, sounds, piano, top >= HEARD, top >= SURE
        several, bias = [], []
        for now in zip(*(flag.tolist() for flag in flags), strict=True):
            self._run = self._run + 1 if now[0] else 0
            now = (self._run >= SECOND_FRAMES, *now[1:])
            self._latest.append(now)
            old = self._latest.popleft()
            if now != old:
                self._counts = [c + n - o for c, n, o in zip(self._counts, now, old, strict=True)]
            seconds, count, pianos, heard, sure = self._counts
            several.append(seconds > 0 or pianos > PIANO_SHARE * count)
            doubt, frames = PRIOR
            doubt = (heard - sure + doubt * frames) / (heard + frames)
            unknown = (doubt - DOUBT[0]) / (DOUBT[1] - DOUBT[0])
            bias.append(line.bias + line.doubt_bias * min(1.0, max(0.0, unknown)))
        return several, np.array(bias, np.float32)


def _best_paths(
    line: LineSettings,
    frame: _F32,
    onset: _F32,
    bias: _F32,
) -> _Paths | None:
    """k pitches that are somewhere worth more than silence, and the gains of the best
    paths from each of n frames on that begin in one of them, [n, k]; in silence, [n]; in one that
    has to be paid for, [n, k]. None: silence is best everywhere.

    ``frame`` and ``onset`` are [n + A, 128], bias [n].
    """
    count, ahead = len(bias), len(frame) - len(bias)
    spread = frame.copy()
    spread[:, 1:] += SPREAD * frame[:, :-1]
    spread[:, :-1] += SPREAD * frame[:, 1:]
    worth = np.maximum(_LEAST, spread.max(axis=0)) > 1 / (1 + np.exp(bias.max()))
    pitches = np.flatnonzero(worth)
    if not len(pitches):
        return None
    odds, gain = _log_odds(spread[:, pitches]), bias[:, None]
    lowered = _log_odds(onset[:, pitches]) - _NO_ONSET
    cost = line.cost - np.float32(line.onset_weight) * np.maximum(0, lowered)
    cost = np.maximum(LEAST_COST, cost)
    note, silent = odds[ahead:] + gain, np.zeros(count, np.float32)
    for i in reversed(range(ahead)):  # from the paths one frame later on
        left = np.maximum(silent, (note - cost[i + 1 : i + 1 + count]).max(axis=1))
        note = odds[i : i + count] + gain + np.maximum(note, left[:, None])
        silent = left
    return pitches.tolist(), note, silent, note - cost[:count]


def _log_odds(probabilities: _F32) -> _F32:
    bounded = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(bounded / (1 - bounded))


_NO_ONSET = _log_odds(np.array(LEAST_ONSET))
