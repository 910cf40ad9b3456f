"""The notes of one player who plays one line: the best path through the frames that are known.

In each frame one pitch sounds, or none. Let y and o be the probabilities of the frame and onset
heads. A path gains g in a frame f of pitch p, and pays c if p begins there:

    g[f, p] = log-odds of (y[f, p] + SPREAD (y[f, p - 1] + y[f, p + 1])) + bias     (silence: 0)
    c[f, p] = cost - onset_weight max(0, log-odds of o[f, p] - log-odds of LEAST_ONSET)

SPREAD keeps a vibrato together; falling silent is free; c is at least LEAST_COST. The bias grows
with the share of the latest frames with a pitch in which the network is in doubt (`_bias`): it is
surer of the players that it knows, and their notes end sooner after its doubt.

Frame f is decided when frame f + A is known (``ahead_frames``). If V[f, p] is the gain of the best
path through f ... f + A that is in p at f, the note that sounds, p, gives way to another pitch q or
to silence, whichever is best, if

    V[f, q] - c[f, q] > V[f, p]        or        V[f, silence] > V[f, p]

The past matters through the sounding note alone: every step of the path is final after A frames,
and another tracker can go on from any of them. A note begins at the peak of its onset head in the
``onset_radius_frames`` after its first frame, if there is one, and is struck again at peaks of at
least ``again_threshold``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import Known, Tracker, onset_shift, peaks
from service.notes.events import NoteEvent
from service.notes.tracker_settings import TrackerSettings

SPREAD = np.float32(0.3)
LEAST_ONSET = np.float32(0.05)
LEAST_COST = np.float32(1.0)
HEARD, SURE = 0.1, 0.5
"""Frame probability of the likeliest pitch from which on it is heard, and without doubt."""
DOUBT = (0.2, 0.6)
"""Shares of doubtful frames up to which a player is known well, and from which on hardly."""
PRIOR = (0.3, 20)
"""Doubt before the first frames, and how many of these it counts for."""
_LEAST = np.float32(5e-3)  # probabilities below it are alike


class _Paths(NamedTuple):
    """The gains of the best paths from each of n frames on that begin in a note; in silence; in a
    note that has to be paid for. ``struck``: where a note that sounds is struck again."""

    note: NDArray[np.float32]  # [n, 128]
    silent: NDArray[np.float32]  # [n]
    begun: NDArray[np.float32]  # [n, 128]
    struck: NDArray[np.bool_]  # [n, 128]


class LineTracker(Tracker):
    """Notes of a stream in which one sounds at a time; needs ``TrackerSettings.line`` and an onset
    head."""

    _onset: int

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...]
    ) -> None:
        assert settings.line is not None
        self._line = settings.line
        self._radius = settings.onset_radius_frames
        self._ahead = max(settings.line.ahead_frames, 2 * self._radius)
        super().__init__(settings, frame_seconds, heads, weighed_after=self._ahead)
        self._past = self._ahead + self._radius
        self._recent = np.zeros((self._n_heads, self._past, PITCHES), np.float32)
        # Of the latest frames: whether a pitch is heard, and surely.
        self._heard = np.zeros((2, self._line.memory_frames), np.bool_)
        self._next = 0  # of the paths
        self.history_frames = max(self._past, self._line.memory_frames)
        self.on_delay_frames = self._ahead + 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = self.on_delay_frames

    @property
    def decided(self) -> int:
        return max(self._pushed, self._resumed) - self._ahead

    def read(self, block: NDArray[np.float32], new: int) -> None:
        if not new:
            return
        kept = self._recent[:, self._recent.shape[1] - self._past :]
        self._recent = np.concatenate([kept, block], axis=1)
        self._paths = self._best(self._bias(block[self._frame]))
        self._next = 0

    def step(self) -> list[NoteEvent]:
        events: list[NoteEvent] = []
        frame = self._pushed - self._ahead
        if self._pushed >= self._resumed and frame >= 0:
            events = self._decide(frame, self._next)
        self._next += 1
        self._pushed += 1
        return events

    def finish(self, end_frame: int) -> Known:
        last = self.push(np.zeros((self._n_heads, self._ahead, PITCHES), np.float32))
        ends = [self._end(pitch, end_frame, end_frame) for pitch in sorted(self._sounding)]
        return [*last, *((self._pushed, event) for event in ends)]

    def close(self) -> list[NoteEvent]:
        ends = {p: max(self.decided, note.event.frame + 1) for p, note in self._sounding.items()}
        return [self._end(pitch, frame, frame) for pitch, frame in sorted(ends.items())]

    def _bias(self, frame: NDArray[np.float32]) -> NDArray[np.float32]:
        """The bias when each of n new frames, [n, 128], is the newest: [n]."""
        likeliest, memory = frame.max(axis=1), self._line.memory_frames
        now = np.stack([likeliest >= HEARD, likeliest >= SURE])
        flags = np.concatenate([self._heard, now], axis=1)
        self._heard = flags[:, -memory:]
        total = np.cumsum(flags, axis=1)
        heard, sure = total[:, memory:] - total[:, :-memory]
        doubt, frames = PRIOR
        doubt = (heard - sure + doubt * frames) / (heard + frames)
        unknown = np.interp(doubt, DOUBT, (0, 1))
        return np.asarray(self._line.bias + self._line.doubt_bias * unknown, np.float32)

    def _best(self, bias: NDArray[np.float32]) -> _Paths:
        """The best paths from each of the frames that n new ones decide, with this bias, [n]."""
        line, count, first = self._line, len(bias), self._past - self._ahead
        frame, onset = self._recent[self._frame, first:], self._recent[self._onset, first:]
        spread = frame.copy()
        spread[:, 1:] += SPREAD * frame[:, :-1]
        spread[:, :-1] += SPREAD * frame[:, 1:]
        odds, gain = log_odds(spread), bias[:, None]
        lowered = np.float32(line.onset_weight) * np.maximum(0, log_odds(onset) - _NO_ONSET)
        cost = np.maximum(LEAST_COST, np.float32(line.cost) - lowered)
        note, silent = odds[self._ahead :] + gain, np.zeros(count, np.float32)
        for i in reversed(range(self._ahead)):  # from the paths one frame later on
            left = np.maximum(silent, (note - cost[i + 1 : i + 1 + count]).max(axis=1))
            note = odds[i : i + count] + gain + np.maximum(note, left[:, None])
            silent = left
        near = self._recent[self._onset, first - self._radius :]
        struck = peaks(near, self._radius, line.again_threshold)
        struck = struck[self._radius : self._radius + count]
        return _Paths(note, silent, note - cost[:count], struck)

    def _decide(self, frame: int, i: int) -> list[NoteEvent]:
        """Decides a frame from the i-th of the paths."""
        note, silent, begun, struck = (part[i] for part in self._paths)
        at = self._past - self._ahead + i  # the column of the frame
        pitch = int(begun.argmax())
        if not self._sounding:
            return self._begin_after(frame, at, pitch) if begun[pitch] > silent else []
        newest = max(sounding.event.frame for sounding in self._sounding.values())
        if frame - newest < self._line.least_frames:
            return []
        # There are others if a tracker of several voices has left them.
        held, *others = sorted(self._sounding, key=lambda one: (-note[one], one))
        events = [self._end(other, frame, frame) for other in others]
        if begun[pitch] > max(note[held], silent):
            events += self._begin_after(frame, at, pitch)
        elif silent > note[held]:
            events.append(self._end(held, frame, frame))
        elif struck[held]:
            events += self._begin_after(frame, at, held)
        return events

    def _begin_after(self, frame: int, at: int, pitch: int) -> list[NoteEvent]:
        """The note_on at the onset soon after a frame, or else there, and before it the note_off of
        the note that sounds until then."""
        near = self._recent[self._onset, at - 1 : at + self._radius + 2, pitch]
        later = int(near[1:-1].argmax())
        shift = 0.0
        if near[1 + later] >= LEAST_ONSET:
            frame, at = frame + later, at + later
            shift = onset_shift(near[later : later + 3])
        time_frames = max(0.0, frame + shift + self.settings.onset_correction_frames)
        ends = [self._end(sounding, frame, time_frames) for sounding in list(self._sounding)]
        confidence = self._recent[self._frame, at : at + self._radius + 1, pitch].max()
        return [*ends, self._begin(self._recent, at, frame, pitch, time_frames, float(confidence))]


def log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    bounded = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(bounded / (1 - bounded))


_NO_ONSET = log_odds(np.array(LEAST_ONSET))
