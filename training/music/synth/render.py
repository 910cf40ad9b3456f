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
from training.music.notes import Notes, joined, next_of_same_pitch
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
        played.append(_play(bank, notes.where(of_part), voice, mix, contact_s, tuning_cents, rng))
    if pianos_audio is not audio:
        audio += pianos_audio
        audio += pianos.sympathetic_resonance(pianos_audio, depth, tuning_cents, rng)
    if has_piano and mechanics:
        keys = joined([part for part, voice in zip(played, voices, strict=True) if voice.dampers])
        noise = pianos.mechanics_noise(mechanics, keys, pedal, len(audio), rng)
        audio += np.abs(audio).max(initial=0) * noise
    return Rendered(audio, joined(played), pedal if has_piano else None)


def _play(
    bank: Bank,
    notes: Notes,
    voice: Voice,
    audio: F32,
    contact_s: F32,
    tuning_cents: float,
    rng: Rng,
) -> Notes:
    """Add the notes of one part to ``audio``. Return them with the offsets of their sound."""
    instrument = voice.instrument
    preference = rng.uniform(0, 12, len(instrument.midi))  # varies which recordings are used
    pick = instrument.pick(notes.pitch + voice.size_semitones, notes.velocity, preference)
    shift = notes.pitch - instrument.midi[pick]
    reached = np.abs(shift) <= 7.5
    notes, pick, shift = notes.where(reached), pick[reached], shift[reached]
    count = len(notes)
    notes, phrasing = apply_phrasing(notes, voice.line, rng)
    cents = tuning_cents + voice.detune_cents * rng.standard_normal(count)
    cents += voice.stretch * pianos.stretch_cents(notes.pitch)
    step = OVERSAMPLING * 2.0 ** ((shift + cents / 100) / 12)  # stored samples per sample
    begin = notes.onset * SAMPLE_RATE
    onset, length = instrument.onset[pick], instrument.length[pick]
    # The attack of a recording precedes its onset, so playback starts earlier than the note. For a
    # slurred note, playback skips the attack and starts half a transition before the note.
    transition = max(2, int(phrasing.transition_s * SAMPLE_RATE))
    after_attack = onset + phrasing.skipped_s * SAMPLE_RATE * OVERSAMPLING
    entry = np.where(phrasing.slurred, np.minimum(after_attack, 0.4 * length), onset)
    lead = np.where(phrasing.slurred, transition / 2, entry / step)
    first = np.ceil(begin - lead).astype(np.intp)  # first sample of each note in the audio
    phase = entry + (first - begin) * step  # position in the recording at this sample
    share = np.zeros(count, np.float32)
    if voice.dampers and rng.random() < 0.5:  # half of the pianos mix two dynamic layers
        other, share = neighbours(instrument, pick, notes.velocity)
        other_step = step * 2.0 ** ((instrument.midi[pick] - instrument.midi[other]) / 12)
        other_phase = instrument.onset[other] + (first - begin) * other_step
    mistuned = np.where(notes.pitch >= 32, voice.unison_cents, 0)  # lower notes have one string
    other_string = 2 ** (mistuned * rng.standard_normal(count) / 1200)
    if voice.dampers:
        dampings = pianos.Dampings(notes, voice.dampers, contact_s)
        falls, end, gone_s = dampings.begin, dampings.end, dampings.gone_s
    else:  # an exponential decay by 43 dB
        release = voice.release_s * SAMPLE_RATE
        fall = np.arange(int(5 * release) + 1, dtype=np.float32)
        fall = np.exp(-fall / np.float32(release))
        falls, gone_s = np.rint(notes.offset * SAMPLE_RATE).astype(np.intp), np.full(count, np.inf)
        end = falls + len(fall) - 1
    held = falls - first
    loop_start, loop_end = instrument.loop_start[pick], instrument.loop_end[pick]
    looped = instrument.sustained & (loop_end > 0)
    recorded = np.floor((length - phase) / step).astype(np.intp)
    total = end - first
    total = np.where(looped, total, np.minimum(total, recorded))
    total = np.minimum(total, len(audio) - first)
    gain_db = voice.dynamic_db * np.log10(notes.velocity / REFERENCE_VELOCITY)
    gain_db += voice.gain_db + voice.balance * instrument.balance_db[pick]
    gain = 10 ** (gain_db / 20) / np.iinfo(np.int16).max
    vibrato_hz = voice.vibrato_hz * (1 + 0.06 * rng.standard_normal(count))
    vibrato_phase = rng.uniform(0, 2 * np.pi, count)
    vibrato_depth = voice.vibrato_cents * rng.uniform(0.5, 1.0, count) / 1200 * np.log(2)

    ramp = np.arange(int(total.max(initial=0)), dtype=np.float64)
    attack = np.linspace(0, 1, int(0.002 * SAMPLE_RATE), dtype=np.float32)
    rising = np.sin(np.linspace(0, np.pi / 2, transition, dtype=np.float32))
    for i in range(count):
        n = int(total[i])
        skip = max(0, -int(first[i]))  # samples of the attack before the excerpt
        if n <= skip:
            continue
        position = ramp[:n] * step[i]
        if phrasing.glide[i]:
            constant = phrasing.glide_s[i] * SAMPLE_RATE
            add_glide(position, float(step[i]), float(phrasing.glide[i]), constant)
        if vibrato_depth[i]:
            turn = 2 * np.pi * vibrato_hz[i] / SAMPLE_RATE
            wobble = np.cos(ramp[:n] * turn + vibrato_phase[i]) - np.cos(vibrato_phase[i])
            position -= wobble * (step[i] * vibrato_depth[i] / turn)
        position += phase[i]
        if phrasing.glide[i] or vibrato_depth[i]:
            np.maximum(position, 0, out=position)
        if looped[i] and position[-1] >= loop_end[i]:
            is_beyond = position >= loop_end[i]
            loop = loop_end[i] - loop_start[i]
            position[is_beyond] = loop_start[i] + (position[is_beyond] - loop_start[i]) % loop
        else:
            np.minimum(position, float(length[i]), out=position)
        origin = int(instrument.start[pick[i]])
        source = bank.samples[origin : origin + int(length[i]) + 2]
        sound = _interpolate(source, position)
        if mistuned[i]:  # both strings start in phase
            position = phase[i] + (position - phase[i]) * other_string[i]
            np.minimum(position, float(length[i]), out=position)
            sound += _interpolate(source, position)
            sound *= np.float32(0.5)
        if share[i]:
            position = ramp[:n] * other_step[i] + other_phase[i]
            np.clip(position, 0, instrument.length[other[i]], out=position)
            second = bank.samples[instrument.start[other[i]] :]
            sound = mix_layers(sound, _interpolate(second, position), float(share[i]))
        rise = rising if phrasing.slurred[i] else attack
        sound[: len(rise)] *= rise[:n]
        if phrasing.slope_db[i] or phrasing.swell_db[i]:
            add_swell(sound, float(phrasing.slope_db[i]), float(phrasing.swell_db[i]))
        sustain = max(0, int(held[i]))
        if phrasing.left[i]:
            sustain = min(n, max(0, sustain - transition // 2))
            sound[sustain : sustain + transition] *= rising[::-1][: n - sustain]
            sound[sustain + transition :] = 0
        elif sustain < n:
            if voice.dampers:
                dampings.apply(i, sound[sustain:])
            else:
                sound[sustain:] *= fall[: n - sustain]
        sound *= np.float32(gain[i])
        at = int(first[i])
        audio[at + skip : at + n] += sound[skip:]
    audible_until = notes.onset + (instrument.audible[pick] - onset) / step / SAMPLE_RATE
    audible_until[looped] = np.inf
    if not voice.dampers:
        faded_db = 0.0 if instrument.class_name in BOWED else FADED_DB
        fade_s = faded_db / 20 * np.log(10) * voice.release_s
        again_s = np.append(notes.onset, np.inf)[next_of_same_pitch(notes.pitch, notes.onset)]
        faded_s = np.minimum(notes.offset + fade_s, np.maximum(again_s, notes.offset))
        notes = notes.ending(np.where(phrasing.connected, notes.offset, faded_s))
    return notes.ending(np.minimum(notes.offset, np.minimum(audible_until, gone_s)))


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
