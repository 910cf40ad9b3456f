"""Renders notes with the instruments of the bank.

Each note uses a recorded note of similar pitch and velocity. Linear interpolation of the
oversampled recording changes its pitch. A sustained recording is looped if the note is longer.
Envelope and gain come last.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.arrays import F32, F64, Rng
from training.music.notes import Notes, joined, next_onsets
from training.music.synth import pianos
from training.music.synth.bank import OVERSAMPLING, Bank, Instrument, mix_layers, neighbours
from training.music.synth.lines import Line, add_glide, add_swell, apply_phrasing

REFERENCE_VELOCITY = 100.0
FADED_DB = 12.0
"""Decay after the release of a plucked or blown note at which its label ends. Labels of recorded
guitars end after a decay of 14 dB, which takes 40 to 80 ms from the release."""
BOWED = ("violin", "viola", "cello", "contrabass")
"""Instruments whose labels end with the bow stroke, because only reverberation follows."""


@dataclass(frozen=True)
class Voice:
    """Instrument and sound of one part of an excerpt."""

    instrument: Instrument
    gain_db: float = 0.0
    dynamic_db: float = 35.0  # level difference of velocities 10 and 100; linear in log velocity
    balance: float = 0.5  # fraction, 0 to 1, of recorded differences in loudness that is kept
    release_s: float = 0.1  # time constant of the decay after the end of a note
    dampers: pianos.Dampers | None = None  # used instead of ``release_s`` for pianos
    detune_cents: float = 2.0  # standard deviation of the notes' tuning
    vibrato_cents: float = 0.0
    vibrato_hz: float = 5.5
    line: Line = Line()  # phrasing of a sustained instrument
    size_semitones: float = 0.0  # recordings are picked this far above a note
    unison_cents: float = 0.0  # standard deviation between the strings of a piano note
    stretch: float = 0.0  # factor of ``pianos.stretch_cents``


@dataclass(frozen=True)
class Rendered:
    """Audio, [samples], and its notes. A note ends when it has faded by FADED_DB, a bowed note when
    the bow leaves the string, and a piano note when the damper starts to fall. Some sound remains
    after these times."""

    audio: F32
    notes: Notes
    pedal: F64 | None = None
    """Presses of the pedal, [n, 3]: begin and end in seconds, and depth 0 to 1. None if unknown."""
    unknown: F64 | None = None
    """Regions in which labels are uncertain, [n, 4]: begin and end in seconds, the pitch (-1 for
    all pitches), and the uncertain labels (1: frame and offset, 2: onset, 3: all three)."""


def shorten_repeats(notes: Notes) -> Notes:
    """End each note where its part plays the same pitch again. Merge notes of a part with the same
    pitch that start within 30 ms of each other. The merged note has the later end."""
    if len(notes) < 2:
        return notes
    notes = notes.where(np.lexsort((notes.onset, notes.pitch, notes.part)))
    follows = (np.diff(notes.pitch) == 0) & (np.diff(notes.part) == 0)
    gap = np.where(follows, np.diff(notes.onset), np.inf)
    offset = notes.offset.copy()
    doubled = np.flatnonzero(gap < 0.03)
    for i in doubled:  # rare: unisons of two staves
        offset[i + 1] = max(offset[i], offset[i + 1])
    offset[:-1] = np.minimum(offset[:-1], notes.onset[:-1] + gap)
    kept = notes.ending(offset).where(np.delete(np.arange(len(notes)), doubled))
    return kept.where(np.argsort(kept.onset, kind="stable"))


def render(
    bank: Bank,
    notes: Notes,
    voices: list[Voice],
    seconds: float,
    tuning_cents: float,
    rng: Rng,
    pedal: F64,
    mechanics: pianos.Mechanics | None = None,
) -> Rendered:
    """Render ``notes``, whose ``part`` indexes ``voices``, to audio of ``seconds``. Omit notes that
    start outside 0..seconds, or whose recording is more than 7.5 semitones away.

    Args:
        tuning_cents: pitch of A4 above 440 Hz.
        pedal: presses as in :class:`Rendered`. They lift the dampers of pianos.
        mechanics: noises of the keys and the pedal of pianos.
    """
    audio = np.zeros(int(seconds * SAMPLE_RATE), np.float32)
    played: list[Notes] = []
    has_piano = any(voice.dampers for voice in voices)
    depth = pianos.pedal_depth(pedal, len(audio))
    contact_s = pianos.contact_time(depth)
    pianos_audio = np.zeros_like(audio) if has_piano and len(pedal) else audio
    for part, voice in enumerate(voices):
        of_part = (notes.part == part) & (notes.onset >= 0) & (notes.onset < seconds)
        mix = pianos_audio if voice.dampers else audio
        sounding = _Part(bank, notes.where(of_part), voice, tuning_cents, contact_s, rng)
        sounding.play(mix)
        played.append(sounding.sounding())
    if pianos_audio is not audio:
        audio += pianos_audio
        audio += pianos.sympathetic_resonance(pianos_audio, depth, tuning_cents, rng)
    if has_piano and mechanics:
        keys = joined([part for part, voice in zip(played, voices, strict=True) if voice.dampers])
        noise = pianos.mechanics_noise(mechanics, keys, pedal, len(audio), rng)
        audio += np.abs(audio).max(initial=0) * noise
    return Rendered(audio, joined(played), pedal if has_piano else None)


MAX_SHIFT = 7.5  # maximum distance, in semitones, of a note from its recording


class _Decay:
    """Exponential decay of notes from their offsets on, by 43 dB. It has the same attributes and
    methods as :class:`pianos.Dampings`."""

    def __init__(self, notes: Notes, release_s: float) -> None:
        release = release_s * SAMPLE_RATE
        time = np.arange(int(5 * release) + 1, dtype=np.float32)
        self._gain = np.exp(-time / np.float32(release))
        self.begin = np.rint(notes.offset * SAMPLE_RATE).astype(np.intp)
        self.end = self.begin + len(self._gain) - 1
        self.gone_s = np.full(len(notes), np.inf)

    def apply(self, _: int, sound: F32) -> None:
        sound *= self._gain[: len(sound)]


class _Part:
    """The notes of one part, and how they play their recordings. Arrays have one element per note.
    Positions in a recording are in samples at STORED_RATE."""

    def __init__(
        self,
        bank: Bank,
        notes: Notes,
        voice: Voice,
        tuning_cents: float,
        contact_s: F32,
        rng: Rng,
    ) -> None:
        """contact_s: [samples], :func:`pianos.contact_time` of the excerpt."""
        instrument = voice.instrument
        preference = rng.uniform(0, 12, len(instrument.midi))  # varies which recordings are used
        pick = instrument.pick(notes.pitch + voice.size_semitones, notes.velocity, preference)
        shift = notes.pitch - instrument.midi[pick]
        reached = np.abs(shift) <= MAX_SHIFT
        pick, shift = pick[reached], shift[reached]
        notes, phrasing = apply_phrasing(notes.where(reached), voice.line, rng)
        self.bank, self.voice = bank, voice
        self.notes, self.phrasing, self.pick = notes, phrasing, pick
        cents = tuning_cents + voice.detune_cents * rng.standard_normal(len(notes))
        cents += voice.stretch * pianos.stretch_cents(notes.pitch)
        self.step = OVERSAMPLING * 2.0 ** ((shift + cents / 100) / 12)  # positions per sample
        self._set_starts()
        self._set_second_layers(rng)
        mistuned = np.where(notes.pitch >= 32, voice.unison_cents, 0)  # lower notes have one string
        self.string_ratio = 2 ** (mistuned * rng.standard_normal(len(notes)) / 1200)
        self.has_second_string = mistuned != 0
        self.ending = (
            pianos.Dampings(notes, voice.dampers, contact_s)
            if voice.dampers
            else _Decay(notes, voice.release_s)
        )
        self._set_lengths(len(contact_s))
        gain_db = voice.dynamic_db * np.log10(notes.velocity / REFERENCE_VELOCITY)
        gain_db += voice.gain_db + voice.balance * instrument.balance_db[pick]
        self.gain = 10 ** (gain_db / 20) / np.iinfo(np.int16).max
        self._set_vibrato(rng)
        self._attack = np.linspace(0, 1, int(0.002 * SAMPLE_RATE), dtype=np.float32)
        self._rise = np.sin(np.linspace(0, np.pi / 2, self.transition, dtype=np.float32))
        self._time = np.arange(int(self.length.max(initial=0)), dtype=np.float64)

    def _set_starts(self) -> None:
        """Set ``first``, the first sample of each note in the audio, and ``phase``, the position in
        its recording at this sample.

        The attack of a recording precedes its onset, so playback starts before the note. For a
        slurred note, playback skips the attack and starts half a transition before the note.
        """
        instrument, phrasing = self.voice.instrument, self.phrasing
        onset, recorded = instrument.onset[self.pick], instrument.length[self.pick]
        self.transition = max(2, int(phrasing.transition_s * SAMPLE_RATE))
        after_attack = onset + phrasing.skipped_s * SAMPLE_RATE * OVERSAMPLING
        entry = np.where(phrasing.slurred, np.minimum(after_attack, 0.4 * recorded), onset)
        lead = np.where(phrasing.slurred, self.transition / 2, entry / self.step)
        begin = self.notes.onset * SAMPLE_RATE
        self.first = np.ceil(begin - lead).astype(np.intp)
        self.phase = entry + (self.first - begin) * self.step

    def _set_second_layers(self, rng: Rng) -> None:
        """Let half of the pianos mix two dynamic layers. Set the share of the second recording of
        each note, and its index, step and phase."""
        self.share = np.zeros(len(self.notes), np.float32)
        if self.voice.dampers and rng.random() < 0.5:
            instrument = self.voice.instrument
            self.other, self.share = neighbours(instrument, self.pick, self.notes.velocity)
            interval = instrument.midi[self.pick] - instrument.midi[self.other]
            self.other_step = self.step * 2.0 ** (interval / 12)
            before_onset = self.first - self.notes.onset * SAMPLE_RATE
            self.other_phase = instrument.onset[self.other] + before_onset * self.other_step

    def _set_lengths(self, audio_length: int) -> None:
        """Set the number of samples that each note sounds, ``length``, and is held, ``held``."""
        instrument = self.voice.instrument
        self.held = self.ending.begin - self.first
        self.loop_start = instrument.loop_start[self.pick]
        self.loop_end = instrument.loop_end[self.pick]
        self.looped = instrument.sustained & (self.loop_end > 0)
        recorded = (instrument.length[self.pick] - self.phase) / self.step
        length = self.ending.end - self.first
        unlooped = np.minimum(length, np.floor(recorded).astype(np.intp))
        length = np.where(self.looped, length, unlooped)
        self.length = np.minimum(length, audio_length - self.first)

    def _set_vibrato(self, rng: Rng) -> None:
        count, voice = len(self.notes), self.voice
        self.vibrato_hz = voice.vibrato_hz * (1 + 0.06 * rng.standard_normal(count))
        self.vibrato_phase = rng.uniform(0, 2 * np.pi, count)
        self.vibrato_depth = voice.vibrato_cents * rng.uniform(0.5, 1.0, count) / 1200 * np.log(2)

    def play(self, audio: F32) -> None:
        """Add all notes to ``audio``."""
        for note in range(len(self.notes)):
            length, first = int(self.length[note]), int(self.first[note])
            skipped = max(0, -first)  # samples of the attack before the excerpt
            if length > skipped:
                sound = self._recorded(note, length)
                self._shape(note, sound)
                audio[first + skipped : first + length] += sound[skipped:]

    def _recorded(self, note: int, length: int) -> F32:
        """Return the sound of a note's recordings at its pitch, [length]."""
        instrument, pick = self.voice.instrument, self.pick[note]
        start, recorded = int(instrument.start[pick]), int(instrument.length[pick])
        source = self.bank.samples[start : start + recorded + 2]
        position = self._positions(note, length)
        sound = _interpolate(source, position)
        if self.has_second_string[note]:  # both strings start in phase
            phase = self.phase[note]
            position = phase + (position - phase) * self.string_ratio[note]
            np.minimum(position, float(recorded), out=position)
            sound += _interpolate(source, position)
            sound *= np.float32(0.5)
        if self.share[note]:
            other = self.other[note]
            position = self._time[:length] * self.other_step[note] + self.other_phase[note]
            np.clip(position, 0, instrument.length[other], out=position)
            second = _interpolate(self.bank.samples[instrument.start[other] :], position)
            sound = mix_layers(sound, second, float(self.share[note]))
        return sound

    def _positions(self, note: int, length: int) -> F64:
        """Return the position in a note's recording at each of its samples, [length]."""
        step, time = self.step[note], self._time[:length]
        glide, depth = self.phrasing.glide[note], self.vibrato_depth[note]
        position = time * step
        if glide:
            constant = self.phrasing.glide_s[note] * SAMPLE_RATE
            add_glide(position, float(step), float(glide), constant)
        if depth:
            turn, phase = 2 * np.pi * self.vibrato_hz[note] / SAMPLE_RATE, self.vibrato_phase[note]
            wobble = np.cos(time * turn + phase) - np.cos(phase)
            position -= wobble * (step * depth / turn)
        position += self.phase[note]
        if glide or depth:
            np.maximum(position, 0, out=position)
        loop_start, loop_end = self.loop_start[note], self.loop_end[note]
        if self.looped[note] and position[-1] >= loop_end:
            is_beyond = position >= loop_end
            beyond = (position[is_beyond] - loop_start) % (loop_end - loop_start)
            position[is_beyond] = loop_start + beyond
        else:
            recorded = self.voice.instrument.length[self.pick[note]]
            np.minimum(position, float(recorded), out=position)
        return position

    def _shape(self, note: int, sound: F32) -> None:
        """Apply, in place, the attack, the swell, the ending and the level of a note."""
        phrasing, length = self.phrasing, len(sound)
        rise = self._rise if phrasing.slurred[note] else self._attack
        sound[: len(rise)] *= rise[:length]
        if phrasing.slope_db[note] or phrasing.swell_db[note]:
            add_swell(sound, float(phrasing.slope_db[note]), float(phrasing.swell_db[note]))
        held = max(0, int(self.held[note]))
        if phrasing.left[note]:
            stop = min(length, max(0, held - self.transition // 2))
            sound[stop : stop + self.transition] *= self._rise[::-1][: length - stop]
            sound[stop + self.transition :] = 0
        elif held < length:
            self.ending.apply(note, sound[held:])
        sound *= np.float32(self.gain[note])

    def sounding(self) -> Notes:
        """Return the notes with the offsets of their sound."""
        notes, voice = self.notes, self.voice
        instrument = voice.instrument
        audible = instrument.audible[self.pick] - instrument.onset[self.pick]
        audible_until_s = notes.onset + audible / self.step / SAMPLE_RATE
        audible_until_s[self.looped] = np.inf
        if not voice.dampers:
            faded_db = 0.0 if instrument.class_name in BOWED else FADED_DB
            fade_s = faded_db / 20 * np.log(10) * voice.release_s
            again_s = next_onsets(notes.pitch, notes.onset)
            faded_s = np.minimum(notes.offset + fade_s, np.maximum(again_s, notes.offset))
            notes = notes.ending(np.where(self.phrasing.connected, notes.offset, faded_s))
        end_s = np.minimum(audible_until_s, self.ending.gone_s)
        return notes.ending(np.minimum(notes.offset, end_s))


def _interpolate(source: NDArray[np.int16], position: F64) -> F32:
    """Return the samples of ``source`` at fractional positions, [n], interpolated linearly."""
    index = position.astype(np.int32)
    fraction = (position - index).astype(np.float32)
    left = source.take(index).astype(np.float32)
    index += 1
    right: NDArray[Any] = source.take(index).astype(np.float32)
    right -= left
    right *= fraction
    right += left
    return right
