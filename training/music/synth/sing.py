"""Makes a recorded voice sing a melody.

The consonant of a syllable precedes the note. The vowel is stretched over the note and gets its
pitch. In the labels, a note starts with its vowel, or in the middle of a slide from the previous
note. It ends where the vowel fades. Its pitch is the semitone nearest to the sung pitch.
"""

import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from model.config import INSTRUMENTS, SAMPLE_RATE
from training.arrays import F64, Rng
from training.music.notes import Notes, notes_of
from training.music.synth.render import REFERENCE_VELOCITY, Rendered
from training.music.synth.voices import FFT, FRAMES_S, RATE, Singer, Syllable

VOICE = INSTRUMENTS.index("voice")
CHORD_S = 0.03  # notes that start within this time form a chord, and the highest note is sung
SHORTEST_S = 0.09  # shorter notes are omitted
SPOKEN, SUNG = (3.0, 11.0), (-4.0, 4.0)
"""Range of a melody's median pitch, in semitones above the median pitch of the recorded speech
(SPOKEN) or singing (SUNG), before it is rounded to octaves."""


class Habits:
    """Random habits of a singer."""

    def __init__(self, rng: Rng, alone: bool = True) -> None:
        """alone: True if there is no accompaniment. Untrained singers may then use any tuning."""
        trained, hums = rng.random() < 0.4, rng.random() < 0.15
        self.tuning = rng.uniform(-0.5, 0.5) if alone and not trained else rng.normal(0, 0.16)
        """Semitones above concert pitch."""
        self.melisma = rng.beta(1, 2)  # fraction of connected notes on the previous syllable
        self.glide = np.exp(rng.uniform(np.log(2), np.log(8)))
        """Standard deviation, in frames, of the Gaussian that smooths pitch changes."""
        self.scoop = rng.beta(1, 2)  # fraction of notes that start below their pitch
        self.fall = rng.beta(1, 4)  # fraction of phrases that end with a falling pitch
        self.vibrato = rng.uniform(0.2, 0.9) if trained else rng.uniform(0, 0.4)  # semitones
        self.vibrato_hz = rng.uniform(4.5, 7)
        self.detune = rng.uniform(0.05, 0.15) if trained else rng.uniform(0.1, 0.35)
        """Standard deviation of a note's pitch in semitones."""
        self.drift = rng.uniform(0.02, 0.1)  # standard deviation of the pitch change per second
        self.size = np.exp(rng.normal(0, 0.07))  # factor of the resonance frequencies
        self.breath_db = -30.0 if hums else rng.uniform(-9, 3)  # level of unvoiced consonants
        self.muffled_hz = np.exp(rng.uniform(np.log(250), np.log(700))) if hums else np.inf
        """Frequency above which closed lips attenuate the sound by 12 dB per octave."""


def line(notes: Notes) -> Notes:
    """Return a melody for one voice. Its notes do not overlap and last at least SHORTEST_S."""
    order = np.lexsort((-notes.pitch, notes.onset))
    notes = notes.where(order)
    keep, last = [], -np.inf
    for index, onset in enumerate(notes.onset):
        if onset - last > CHORD_S:
            keep.append(index)
            last = onset
    notes = notes.where(np.array(keep, np.intp))
    until = np.append(notes.onset[1:], np.inf)
    notes = notes.ending(np.minimum(notes.offset, until))
    return notes.where(notes.offset - notes.onset >= SHORTEST_S)


def shift_to_range(notes: Notes, singer: Singer, rng: Rng) -> Notes:
    """Shift the melody by octaves into the singer's range."""
    if not len(notes):
        return notes
    centre = singer.pitch + rng.uniform(*(SUNG if singer.sings else SPOKEN))
    away = 12 * round((centre - float(np.median(notes.pitch))) / 12)
    return notes.replaced(pitch=(notes.pitch + away).astype(np.int16))


def random_melody(seconds: float, rng: Rng) -> Notes:
    """Return a random melody in a scale: steps, leaps, repeated notes, held notes and rests."""
    scale = np.array([[0, 2, 4, 5, 7, 9, 11], [0, 2, 3, 5, 7, 8, 10]][rng.integers(2)])
    beat = float(np.exp(rng.uniform(np.log(0.22), np.log(0.8))))
    time, degree = float(rng.uniform(0.1, 1)), int(rng.integers(7))
    onsets, offsets, pitches = [], [], []
    while time < seconds:
        length = beat * float(rng.choice([0.5, 1, 1, 1, 2, 3]))
        degree = int(np.clip(degree + rng.choice([-4, -2, -1, -1, 0, 0, 1, 1, 2, 4]), -3, 10))
        onsets.append(time)
        offsets.append(time + length * float(rng.choice([1, 1, 1, rng.uniform(0.4, 1)])))
        pitches.append(60 + 12 * (degree // 7) + scale[degree % 7])
        time += length
        if rng.random() < 0.12:
            time += beat * float(rng.choice([1, 2, 4]))  # breath
    count = len(onsets)
    velocity = 80 + 12 * np.sin(np.arange(count) / rng.uniform(1.5, 4)) + rng.normal(0, 4, count)
    return notes_of(onsets, offsets, pitches, np.clip(velocity, 20, 120))


def sing(
    notes: Notes, singer: Singer, habits: Habits, seconds: float, tuning_cents: float, rng: Rng
) -> Rendered:
    """Render a melody, which has the form that :func:`line` returns, to audio of ``seconds``. The
    notes of the result have the sung times and pitches."""
    notes = notes.where((notes.onset >= 0.02) & (notes.onset < seconds - SHORTEST_S))
    notes = notes.ending(np.minimum(notes.offset, seconds))
    out = np.zeros(int(seconds * SAMPLE_RATE), np.float32)
    if not len(notes):
        return Rendered(out, notes)
    score = _Frames(int(seconds * FRAMES_S) + 1)
    notes = score.write(notes, singer, habits, rng)
    pitch, nearest = score.pitches(notes, habits, habits.tuning + tuning_cents / 100, rng)
    audio = score.synthesise(singer, pitch, habits)[: len(out)]
    out[: len(audio)] = audio
    return Rendered(out, score.joined(notes.replaced(pitch=nearest).played_by(VOICE)))


class _Frames:
    """Plan of a melody: frame of the singer's recordings, note and gain for each sung frame."""

    def __init__(self, count: int) -> None:
        self.source = np.full(count, -1.0)  # -1 for silence
        self.voiced = np.zeros(count, bool)
        self.gain_db = np.zeros(count)
        self.note = np.zeros(count, np.intp)
        """Index of the note whose pitch each frame has, including frames between notes."""
        self.vowels: list[tuple[int, int, bool]] = []
        """For each note its first frame, the frame after its last frame, and True if the pitch
        slides from the previous note to this one."""

    def write(self, notes: Notes, singer: Singer, habits: Habits, rng: Rng) -> Notes:
        """Assign syllables to frames. Return the notes with the times of their vowels."""
        first = np.rint(notes.onset * FRAMES_S).astype(int)
        last = np.minimum(np.rint(notes.offset * FRAMES_S).astype(int), len(self.source))
        gain_db = 30 * np.log10(notes.velocity / REFERENCE_VELOCITY)
        words = rng.permutation(len(singer.syllables))
        end = 0
        repeats = np.append(False, np.diff(notes.pitch) == 0)
        for word, group in enumerate(_by_syllable(notes, habits, rng)):
            syllable = singer.syllables[int(words[word % len(words)])]
            begin, stop = int(first[group[0]]), int(last[group[-1]])
            # The consonant replaces the end of the previous note, but at most half of the note.
            last_begin, last_end = self.vowels[-1][:2] if self.vowels else (end, end)
            earliest = min(end, (last_begin + last_end) // 2)
            lead = min(syllable.vowel - syllable.begin, begin - earliest)
            if self.vowels:
                # At least 6 frames of silence or consonant precede a repeated note.
                self._end_before(begin - max(lead, 6 if repeats[group[0]] else 0))
            frames = np.arange(begin - lead, begin)
            self.source[frames] = syllable.vowel - lead + np.arange(lead)
            self.voiced[frames] = self.source[frames] >= syllable.voiced
            level_db = np.interp(np.arange(begin, stop), first[group], gain_db[group])
            level_db -= syllable.level_db
            self.gain_db[frames] = level_db[0] + habits.breath_db * ~self.voiced[frames]
            end = stop + min(syllable.end - syllable.release, len(self.source) - stop)
            self.source[begin:stop] = _stretched(syllable, stop - begin)
            self.source[stop:end] = syllable.release + np.arange(end - stop)
            self.voiced[begin:end] = True
            self.gain_db[begin:stop] = level_db
            self.gain_db[stop:end] = level_db[-1]
            self.source[end:] = -1
            self.voiced[end:] = False
            bounds = [*(int(frame) for frame in first[group]), stop]
            slides = [index > 0 for index in range(len(group))]
            self.vowels += zip(bounds[:-1], bounds[1:], slides, strict=True)
        previous = 0  # end of the previous vowel; frames between two notes are divided equally
        for index, (begin, stop, _) in enumerate(self.vowels):
            self.note[(previous + begin) // 2 if begin > previous else begin :] = index
            previous = stop
        bounds_s = np.array([vowel[:2] for vowel in self.vowels]) / FRAMES_S
        return notes.replaced(onset=bounds_s[:, 0], offset=bounds_s[:, 1])

    def _end_before(self, frame: int) -> None:
        """End the last vowel at ``frame``, but not before its middle."""
        begin, end, slid = self.vowels[-1]
        stop = max(frame, (begin + end) // 2)
        if stop < end:
            self.vowels[-1] = begin, stop, slid
            self.source[stop:] = -1
            self.voiced[stop:] = False

    def pitches(
        self, notes: Notes, habits: Habits, tuning: float, rng: Rng
    ) -> tuple[NDArray, NDArray[np.int16]]:
        """Return the MIDI pitch of each frame, and for each note the semitone nearest to the pitch
        in its middle."""
        count = len(self.source)
        own = notes.pitch + tuning + habits.detune * rng.standard_normal(len(notes))
        pitch = gaussian_filter1d(own[self.note], habits.glide, mode="nearest")
        steps = rng.standard_normal(count) * habits.drift / np.sqrt(FRAMES_S)
        pitch += np.clip(np.cumsum(steps), -0.3, 0.3)
        middle = np.array([(begin + end) // 2 for begin, end, _ in self.vowels], np.intp)
        nearest = np.rint(pitch[middle]).astype(np.int16)
        for index, (begin, end, slid) in enumerate(self.vowels):
            time = np.arange(end - begin) / FRAMES_S
            if not slid and rng.random() < habits.scoop:
                depth, constant = rng.uniform(0.2, 2.5), rng.uniform(0.015, 0.06)
                pitch[begin:end] -= depth * np.exp(-time / constant)
            ends_phrase = index + 1 == len(self.vowels) or self.vowels[index + 1][0] > end + 20
            if ends_phrase and rng.random() < habits.fall:
                constant = rng.uniform(0.02, 0.06)
                pitch[begin:end] -= rng.uniform(0.5, 3) * np.exp((time - time[-1:]) / constant)
            rise = np.clip((time - rng.uniform(0.05, 0.35)) / 0.2, 0, 1)
            depth = habits.vibrato * rng.uniform(0.3, 1)
            turn = 2 * np.pi * habits.vibrato_hz * rng.normal(1, 0.05)
            pitch[begin:end] += depth * rise * np.sin(turn * time + rng.uniform(0, 6.28))
        return pitch, nearest

    def joined(self, notes: Notes) -> Notes:
        """Join each note with the previous note if it slides from the same pitch."""
        same = np.append(False, np.diff(notes.pitch) == 0)
        begins = ~(same & [slid for _, _, slid in self.vowels])
        last = np.append(np.flatnonzero(begins)[1:], len(notes)) - 1
        return notes.where(begins).replaced(offset=notes.offset[last])

    def synthesise(self, singer: Singer, pitch: F64, habits: Habits) -> NDArray:
        """Synthesise the frames, and resample the audio to shift its resonances. The frame period
        and pitch compensate for the change in duration and pitch."""
        import pyworld  # its import prints a warning

        size, sounding = habits.size, self.source >= 0
        position = np.clip(self.source, 0, len(singer.envelope) - 1)
        left = np.minimum(position.astype(np.intp), len(singer.envelope) - 2)
        share = (position - left)[:, None]

        def interpolate(coded: NDArray) -> F64:
            near, far = coded[left].astype(np.float64), coded[left + 1].astype(np.float64)
            return np.ascontiguousarray(near + share * (far - near))

        envelope = pyworld.decode_spectral_envelope(interpolate(singer.envelope), RATE, FFT)
        gain_db = np.where(sounding, self.gain_db, -120)
        envelope *= 10 ** (gain_db / 10)[:, None]
        hz = np.linspace(0, RATE / 2, envelope.shape[1])
        envelope /= 1 + (hz / habits.muffled_hz) ** 4
        aperiodicity = pyworld.decode_aperiodicity(interpolate(singer.aperiodicity), RATE, FFT)
        hertz = np.where(self.voiced, 440 * 2 ** ((pitch - 69) / 12) / size, 0.0)
        period_ms = 1000 * size / FRAMES_S
        audio = pyworld.synthesize(hertz, envelope, aperiodicity, RATE, period_ms)
        return soxr.resample(audio, size * RATE, SAMPLE_RATE)


def _by_syllable(notes: Notes, habits: Habits, rng: Rng) -> list[list[int]]:
    """Group notes that share a syllable. Return the indexes of each group's notes."""
    groups: list[list[int]] = []
    for index in range(len(notes)):
        gap = notes.onset[index] - notes.offset[index - 1] if index else np.inf
        moves = index and notes.pitch[index] != notes.pitch[index - 1]
        if gap < 0.06 and moves and rng.random() < habits.melisma:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _stretched(syllable: Syllable, length: int) -> F64:
    """Stretch the middle of a vowel, so that the vowel lasts ``length`` frames. Return the recorded
    frame, possibly fractional, for each of these frames."""
    natural = syllable.release - syllable.vowel
    edge = min(10, natural // 3, length // 3)
    begin, end = syllable.vowel + edge, syllable.release - edge
    middle = np.linspace(begin, end, max(0, length - 2 * edge), endpoint=False)
    return np.concatenate([np.arange(syllable.vowel, begin), middle, end + np.arange(edge)])
