"""Classifies the instrument of each note, live.

A note gets an instrument when it starts. The choice depends on the network's instrument
probabilities at the frames around the onset, as far as they have arrived. It also depends on the
belief, which describes the instruments that have played recently. Half a second later, all frames
around the onset have arrived. If the note still sounds and another class is now likelier, a
``note_update`` reports this class. A note has one instrument, even if two play the same pitch.

The evidence e_c of a note for each class c of instruments is the mean logarithm of the
probabilities of c at the frames around the onset. The frames nearest to the onset count most. The
belief has a weight w_c for each class: the number of recent notes of c. With K classes::

    prior       b_c = (w_c + prior_notes / K) / (sum of w + prior_notes)
    posterior   q_c = exp(e_c + trust log b_c) / (sum of these terms over all classes)
    class       argmax of q, with the probability max q
    update      w_c <- kept w_c + q_c, rounded

The prior is the predictive distribution of a Dirichlet prior whose counts decay exponentially. A
note with clear evidence gets its class even if this class is new. A note with unclear evidence gets
the class of the recent notes. A note that sounds alone probably belongs to the performer of the
earlier notes, so its class is chosen with SOLO_TRUST instead of ``belief_trust``. The
update always uses ``belief_trust``, because the belief must not confirm itself. After RESET_S of
silence the weights restart from 0, because the performer may have changed. The belief is rounded,
so that a checkpoint contains it exactly.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from model.instruments import predicted_instruments
from service.notes.events import UPDATE_S, NoteEvent
from service.notes.frames import LatestFrames
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint, InstrumentPrior

REACH = 2  # number of frames on each side of an onset that are evidence, as in training
_NEARNESS = 1 - np.abs(np.arange(-REACH, REACH + 1)) / (REACH + 1)
_FLOOR = np.float32(1e-3)  # minimum probability, so that no single frame can exclude a class
RESET_S = 10.0  # duration of a silence that resets the belief
SOLO_TRUST = 2.0  # weight of the belief for notes that sound alone
_DIGITS = 4  # decimal places of the weights


class InstrumentClassifier:
    """Classifies the notes of one stream."""

    def __init__(
        self,
        heads: tuple[str, ...],
        frame_seconds: float,
        considered: tuple[str, ...],
        settings: TrackerSettings,
    ) -> None:
        """considered: possible classes of a note; empty for all classes of the heads. Without
        instrument heads, notes get no instrument."""
        available = predicted_instruments(heads)
        self.classes = tuple(name for name in available if name in considered or not considered)
        self.belief = InstrumentPrior()
        self._settings = settings
        rows = [heads.index(f"instrument:{name}") for name in self.classes]
        first, stop = min(rows, default=0), max(rows, default=-1) + 1
        self._stored = slice(first, stop)  # stored rows: all from the first to the last class
        self._rows = [row - first for row in rows]
        self._update_frames = round(UPDATE_S / frame_seconds)
        self._reset_frames = round(RESET_S / frame_seconds)
        self.history_frames = self._update_frames + REACH if self.classes else 0
        self._frames = LatestFrames(stop - first, self.history_frames)
        self._recent = np.zeros((stop - first, 0, PITCHES), np.float32)
        self._first = self._stop = 0  # frame of the first column, and frame after the last column
        self._sounding: dict[int, NoteEvent] = {}
        self._due: deque[NoteEvent] = deque()  # notes that may still get an update, oldest first

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        """Continue where another classifier of the same stream stopped. The next block starts with
        ``first_frame``."""
        self.belief = checkpoint.belief
        self._stop = first_frame
        ordered = sorted(checkpoint.sounding, key=lambda event: event.note_id)
        self._sounding = {event.note_id: event for event in ordered}
        self._due.extend(e for e in ordered if e.frame >= checkpoint.frames - self._update_frames)

    def append(self, first: int, probabilities: NDArray[np.float32], new: int) -> None:
        """Store the next ``new`` frames. Then call ``step`` for each of them.

        probabilities: [heads, n, 128] from frame ``first`` on. Earlier frames replace the stored
        ones. At the end of a stream, new frames may be missing.
        """
        if self.classes:
            missing = np.zeros((len(self._recent), new, PITCHES), np.float32)
            self._recent = self._frames.append(missing)
            self._stop += new
            self._first = self._stop - self._recent.shape[1]
            column = first - self._first
            self._recent[:, column : column + probabilities.shape[1]] = probabilities[self._stored]

    def step(self, frame: int, events: Iterable[NoteEvent]) -> list[NoteEvent]:
        """Return the tracker's events at ``frame`` with instruments, followed by note_updates."""
        if not self.classes:
            return list(events)
        out = [self._begin(e, frame) if e.kind == "note_on" else self._end(e) for e in events]
        for event in [e for e in self._due if e.frame + self._update_frames <= frame]:
            self._due.remove(event)
            if event.note_id in self._sounding:
                trust = self._trust(alone=len(self._sounding) == 1)
                updated = self._classified(event, self._posterior(event, frame, trust))
                if updated.instrument != event.instrument:
                    self._sounding[event.note_id] = updated
                    out.append(replace(updated, kind="note_update"))
        return out

    def _begin(self, event: NoteEvent, frame: int) -> NoteEvent:
        silent_frames = event.frame - self.belief.frame
        if not self._sounding and silent_frames > self._reset_frames:
            self.belief = InstrumentPrior()
        update = self._posterior(event, frame, self._settings.belief_trust)
        posterior = self._posterior(event, frame, self._trust(alone=not self._sounding))
        kept = self._settings.belief_kept
        weights = {
            name: round(kept * self.belief.weights.get(name, 0.0) + q, _DIGITS)
            for name, q in zip(self.classes, update.tolist(), strict=True)
        }
        self.belief = InstrumentPrior({name: w for name, w in weights.items() if w}, event.frame)
        event = self._classified(event, posterior)
        self._sounding[event.note_id] = event
        self._due.append(event)
        return event

    def _end(self, event: NoteEvent) -> NoteEvent:
        on = self._sounding.pop(event.note_id)
        self.belief = InstrumentPrior(self.belief.weights, max(self.belief.frame, event.frame))
        probability = on.instrument_probability
        return replace(event, instrument=on.instrument, instrument_probability=probability)

    def share(self, names: tuple[str, ...]) -> float:
        """Return the share of these classes in the weights of the belief, 0 to 1."""
        weights = self.belief.weights
        total = sum(weights.values())
        return sum(weights.get(name, 0.0) for name in names) / total if total else 0.0

    def _trust(self, alone: bool) -> float:
        return SOLO_TRUST if alone else self._settings.belief_trust

    def _posterior(self, event: NoteEvent, frame: int, trust: float) -> NDArray[np.float64]:
        """Return q of the module's equations, [classes], from the frames up to ``frame``."""
        first = max(0, event.frame - REACH)
        # At the end of a stream frames are missing.
        stop = min(event.frame + REACH, frame, self._stop - 1) + 1
        near = self._recent[:, first - self._first : stop - self._first, event.pitch][self._rows]
        near = np.fmin(np.fmax(near, _FLOOR), 1).astype(np.float64)  # NaN becomes _FLOOR
        nearness = _NEARNESS[first - event.frame + REACH : stop - event.frame + REACH]
        evidence = np.log(near) @ nearness / nearness.sum()
        weights = np.array([self.belief.weights.get(name, 0.0) for name in self.classes])
        prior_notes = self._settings.belief_prior_notes
        prior = (weights + prior_notes / len(self.classes)) / (weights.sum() + prior_notes)
        score = evidence + trust * np.log(prior)
        likely = np.exp(score - score.max())
        return likely / likely.sum()

    def _classified(self, event: NoteEvent, posterior: NDArray[np.float64]) -> NoteEvent:
        best = int(posterior.argmax())
        instrument, probability = self.classes[best], round(float(posterior[best]), 4)
        return replace(event, instrument=instrument, instrument_probability=probability)
