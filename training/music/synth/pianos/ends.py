"""How the notes of a part end: start, end and shape of each decay."""

import numpy as np
from numpy.typing import NDArray

from training.music.notes import Notes, next_strokes
from training.music.synth.pianos import dampers as felt

RELEASE_TIME_CONSTANTS = 5.0
"""A release is rendered until it is 43 dB down."""


class Releases:
    """Notes that fade by one exponential from their offset on: bowed, blown or plucked ones."""

    def __init__(self, notes: Notes, release_s: float, sample_rate: int) -> None:
        length = int(RELEASE_TIME_CONSTANTS * release_s * sample_rate)
        self.begin = np.rint(notes.offset * sample_rate).astype(np.intp)
        """Sample at which each note [n] begins to fall."""
        self.end = self.begin + length
        """Sample at which it is over."""
        self.gone_s = np.full(len(notes), np.inf)
        """Second by which it is inaudible, where that comes before its offset."""
        time = np.arange(length + 1, dtype=np.float32)
        self._gain = np.exp(-time / np.float32(release_s * sample_rate))

    def apply(self, note: int, sound: NDArray[np.float32]) -> None:
        """Let ``sound``, the samples of a note from ``begin`` on, fall in place."""
        sound *= self._gain[: len(sound)]


class Dampings:
    """Notes of a piano, each of which ends by its damper, the pedal or its next stroke.

    ``contact_s`` [samples] is :func:`pedal.contact_time` of the excerpt. A string that is struck
    again while it sounds keeps some of its motion beneath the new note, whose release damps it too.
    """

    def __init__(
        self, notes: Notes, dampers: felt.Dampers, contact_s: NDArray[np.float32], sample_rate: int
    ) -> None:
        last = len(contact_s) - 1

        def sample(time: NDArray[np.float64]) -> NDArray[np.intp]:
            return np.rint(np.minimum(time * sample_rate, last)).astype(np.intp)

        self._dampers, self._rate, self._contact_s = dampers, sample_rate, contact_s
        self._constant_s = felt.time_constants(dampers, notes.pitch)
        self._frequency = 440 * 2.0 ** ((notes.pitch - 69) / 12)
        again = next_strokes(notes.pitch, notes.onset)
        struck = np.append(notes.onset, np.inf)[again]
        released = np.append(notes.released + dampers.delay_s, np.inf)
        self._struck = sample(struck)
        self.begin = np.minimum(sample(released[:-1]), self._struck)
        # The contact it takes to silence each note; some of it comes before the next stroke.
        target = contact_s[self.begin] + dampers.tail * self._constant_s
        self.end = np.searchsorted(contact_s, target)
        self._damped_again = sample(released[again])
        rest = target - contact_s[self._struck] + contact_s[self._damped_again]
        after_next = np.append(again, len(notes))[again]
        over = sample(np.append(notes.onset, np.inf)[after_next]) + int(
            felt.RESTRIKE_CONSTANTS * dampers.restrike_s * sample_rate
        )
        later = np.minimum(np.searchsorted(contact_s, rest), over)
        self.end = np.where(self.end > self._struck, np.maximum(later, self._struck), self.end)
        self.end = np.where(self.end > last, last + 1, self.end)
        faded = contact_s[self.begin] + felt.FADED * self._constant_s
        gone_s = np.searchsorted(contact_s, faded) / sample_rate
        self.gone_s = np.maximum(notes.released, np.where(faded > contact_s[-1], np.inf, gone_s))

    def apply(self, note: int, sound: NDArray[np.float32]) -> None:
        """As in :class:`Releases`."""
        begin = int(self.begin[note])
        contact_s = self._contact_s[begin : begin + len(sound)]
        contact_s = contact_s - contact_s[0]
        struck = int(self._struck[note]) - begin
        if struck < len(sound):  # the new stroke lifts the damper until its own key is released
            again = min(int(self._damped_again[note]) - begin, len(sound) - 1)
            rest = np.maximum(contact_s[struck:] - contact_s[again], 0)
            contact_s[struck:] = contact_s[struck] + rest
            felt.restrike(sound, struck, self._dampers, self._rate)
        constant_s = float(self._constant_s[note])
        touched = int(np.searchsorted(contact_s, 0, side="right"))
        if touched < len(sound) and np.isfinite(constant_s):
            felt.damp(
                sound[touched:],
                contact_s[touched:],
                constant_s,
                float(self._frequency[note]),
                self._dampers,
                self._rate,
            )
        if begin + len(sound) < len(self._contact_s):
            fade = min(len(sound), int(felt.TAIL_FADE_S * self._rate))
            sound[len(sound) - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)
