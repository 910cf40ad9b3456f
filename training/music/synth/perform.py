"""Turns scores into performances: draws timing, dynamics and instruments.

Engraved scores have exact times, constant dynamics, notes of full length and no pedal. A network
trained on such audio would learn to rely on these properties.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.instruments import class_of
from training.arrays import F32, F64, Rng, draw
from training.music.notes import Notes, joined
from training.music.synth import pianos
from training.music.synth.bank import HELD_OUT, Bank, Instrument
from training.music.synth.lines import random_line
from training.music.synth.render import Voice, shorten_repeats
from training.music.synth.scores import PITCH_HIGH, PITCH_LOW, Piece
from training.music.synth.sing import VOICE


def perform(piece: Piece, start_s: float, seconds: float, rng: Rng) -> tuple[Notes, F64]:
    """Draw a performance of ``seconds`` of a piece from ``start_s``. Return its notes, whose
    ``part`` is unchanged, and its pedal presses, [presses, 2]. Times count from the start of the
    excerpt. The pedal affects only pianos, so it does not extend notes yet."""
    tempo = float(np.exp(rng.uniform(np.log(0.7), np.log(1.4))))  # relative to the written tempo
    begin, end = np.searchsorted(piece.notes.onset, [start_s, start_s + seconds * tempo])
    notes = piece.notes.where(np.arange(begin, end))
    lead = float(rng.uniform(0.0, 0.8))
    # Rubato: the tempo changes every 0.7 to 3 s. The integral of its inverse, `pace`, maps written
    # time to played time.
    spread = 0.01 if piece.expressive else float(rng.uniform(0.02, 0.1))
    knots = np.arange(0, seconds * tempo + 60, rng.uniform(0.7, 3.0))
    pace = np.exp(rng.normal(0, spread, len(knots))) / tempo
    played = lead + np.concatenate([[0], np.cumsum(np.diff(knots) * pace[1:])])

    def warp(time: F64) -> F64:
        return np.interp(time - start_s, knots, played)

    onset, offset = warp(notes.onset), warp(notes.offset)
    pedal = piece.pedal[piece.pedal[:, 1] > start_s]
    pedal = warp(np.maximum(pedal, start_s))
    pedal = pedal[(pedal[:, 1] > pedal[:, 0]) & (pedal[:, 0] < seconds)]
    if not piece.expressive:
        jitter_s = rng.uniform(0.003, 0.02)
        onset = np.maximum(onset + rng.normal(0, jitter_s, len(onset)), 0)
        held = rng.uniform(0.55, 1.05) + rng.normal(0, 0.08, len(onset))
        offset = onset + (offset - onset) * np.clip(held, 0.25, 1.1)
    notes = notes.replaced(
        onset=onset,
        offset=np.maximum(offset, onset + 0.04),
        pitch=(notes.pitch + _transposition(notes.pitch, rng)).astype(np.int16),
        velocity=_dynamics(notes, onset, piece.expressive, seconds, rng),
    )
    if piece.group in KEYBOARD_GROUPS:
        notes = _with_repeats(_with_bass_octaves(notes, rng), rng)
    inside = (notes.pitch >= PITCH_LOW) & (notes.pitch <= PITCH_HIGH) & (notes.onset < seconds)
    notes = notes.where(inside)
    return notes.where(np.argsort(notes.onset, kind="stable")), pedal


KEYBOARD_GROUPS = ("solo piano", "pop piano")
EMBELLISHED = 0.25
"""Fraction of keyboard passages with added bass octaves. The same fraction has added fast repeats.
Scores contain few of either, and networks missed both most often in recordings of pianos."""
BASS_BELOW = 55  # MIDI pitch below which notes are doubled


def _with_bass_octaves(notes: Notes, rng: Rng) -> Notes:
    """Double most low notes one octave lower in the fraction EMBELLISHED of passages."""
    if rng.random() > EMBELLISHED:
        return notes
    low = notes.where((notes.pitch < BASS_BELOW) & (rng.random(len(notes)) < 0.8))
    softer = np.clip(low.velocity * rng.uniform(0.7, 1.1), 12, 122).astype(np.float32)
    late_s = np.abs(rng.normal(0, 0.006, len(low)))
    octave = low.replaced(
        onset=low.onset + late_s,
        offset=low.offset + late_s,
        pitch=(low.pitch - 12).astype(np.int16),
        velocity=softer,
    )
    return joined([notes, octave])


def _with_repeats(notes: Notes, rng: Rng) -> Notes:
    """Repeat some longer notes every 90 to 250 ms in the fraction EMBELLISHED of passages."""
    if rng.random() > EMBELLISHED or not len(notes):
        return notes
    period_s = rng.uniform(0.09, 0.25)
    split = (notes.offset - notes.onset > 2 * period_s) & (rng.random(len(notes)) < 0.3)
    again = notes.where(split)
    strokes = np.minimum((again.offset - again.onset) / period_s, 8).astype(int)
    row = np.repeat(np.arange(len(again)), strokes)
    stroke = np.arange(len(row)) - np.repeat(np.cumsum(strokes) - strokes, strokes)
    jitter_s = np.where(stroke > 0, rng.normal(0, 0.006, len(row)), 0)
    onset = again.onset[row] + stroke * period_s + jitter_s
    velocity = again.velocity[row] + rng.normal(0, 6, len(row))
    repeats = again.where(row).replaced(
        onset=onset,
        offset=onset + period_s * rng.uniform(0.4, 0.95),
        velocity=np.clip(velocity, 12, 122).astype(np.float32),
    )
    return joined([notes.where(~split), repeats])


def _transposition(pitch: NDArray[np.int16], rng: Rng) -> int:
    """Draw a shift in semitones that moves no note out of PITCH_LOW..PITCH_HIGH."""
    reach = 12 if rng.random() < 0.2 else 5
    shift = int(rng.integers(-reach, reach + 1))
    lowest = min(0, PITCH_LOW - int(pitch.min(initial=PITCH_HIGH)))
    highest = max(0, PITCH_HIGH - int(pitch.max(initial=PITCH_LOW)))
    return int(np.clip(shift, lowest, highest))


def _dynamics(notes: Notes, onset: F64, expressive: bool, seconds: float, rng: Rng) -> F32:
    """Draw velocities, [notes]. The dynamics of a performance are scaled and shifted. In a score,
    phrases swell and fade, and parts and notes differ in velocity."""
    if expressive:
        mean = float(notes.velocity.mean()) if len(notes) else 64.0
        velocity = mean + (notes.velocity - mean) * rng.uniform(0.8, 1.3) + rng.normal(0, 14)
    else:
        knots = np.arange(0, seconds + 12, rng.uniform(1.5, 6.0))
        level = rng.uniform(30, 105) + rng.normal(0, rng.uniform(4, 18), len(knots))
        parts = rng.normal(0, 7, int(notes.part.max(initial=0)) + 1)
        velocity = np.interp(onset, knots, level) + parts[notes.part]
        velocity = velocity + rng.normal(0, rng.uniform(2, 8), len(onset))
    return np.clip(velocity, 12, 122).astype(np.float32)


def orchestrate(
    bank: Bank,
    piece: Piece,
    notes: Notes,
    pedal: F64,
    rng: Rng,
    only: tuple[str, ...] | None = None,
) -> tuple[Notes, list[Voice], F64]:
    """Assign a voice to each part. Raises ValueError if the bank has none of the entries to use.

    Args:
        pedal: presses, [n, 2]. If there are none, presses may be drawn.
        only: names of the bank's entries to use, for validation. None means all except HELD_OUT.

    Returns:
        The notes, whose ``part`` indexes the voices. They may be out of a voice's range.
        The voices.
        The pedal, [presses, 3] (begin s, end s, depth), without presses if no voice is a piano.
    """
    usable = [
        entry
        for name, entry in bank.instruments.items()
        if (name in only if only is not None else name not in HELD_OUT)
    ]
    if not usable:
        raise ValueError("the bank has none of the requested instruments")
    # Parts with the same struck or plucked instrument share its strings, so they become one voice.
    part_voice = np.zeros(len(piece.programs), np.int16)
    voices: list[Voice] = []
    shared: dict[str, int] = {}
    for part, entry in enumerate(assign_instruments(piece, notes, usable, rng)):
        if not entry.sustained and entry.name in shared:
            part_voice[part] = shared[entry.name]
            continue
        shared[entry.name] = part_voice[part] = len(voices)
        voices.append(voice_for(entry, rng))
    numbers = np.array([voice.instrument.number for voice in voices], np.int8)
    voice_of = part_voice[notes.part]
    notes = notes.replaced(part=voice_of, instrument=numbers[voice_of])
    piano_voices = [i for i, voice in enumerate(voices) if voice.dampers]
    if not piano_voices:
        return shorten_repeats(notes), voices, np.zeros((0, 3))
    if not len(pedal) and rng.random() < 0.5:
        pedal = pianos.random_pedal(notes, rng)
    presses = pianos.pedal_depths(pianos.split_long_presses(pedal), rng)
    extended = pianos.extend_by_pedal(notes, presses)
    on_piano = np.isin(notes.part, piano_voices)
    notes = notes.ending(np.where(on_piano, extended.offset, notes.offset))
    return shorten_repeats(notes), voices, presses


PIANOS = ("piano", "electric_piano", "electric_grand")  # with dampers and a sustain pedal
WITH_VIBRATO = ("violin", "viola", "cello", "contrabass", "voice", "choir")
"""Instruments that are often played or sung with vibrato."""
RINGING = ("harp", "celtic harp", "zither", "vibraphone", "glockenspiel")
"""Instruments whose notes continue to ring after their written end."""


def voice_for(entry: Instrument, rng: Rng) -> Voice:
    """Return a voice with this instrument, and with random settings of sound and phrasing."""
    if not entry.sustained:
        release = (0.2, 0.8) if entry.instrument in RINGING else (0.02, 0.08)
        is_piano = entry.instrument == "piano"
        return Voice(
            entry,
            release_s=float(rng.uniform(*release)),
            gain_db=float(rng.uniform(-3, 3)),
            dynamic_db=float(rng.uniform(25, 45)),
            balance=float(rng.uniform(0, 1)),
            dampers=pianos.Dampers(rng) if entry.instrument in PIANOS else None,
            detune_cents=_detuning(rng) if is_piano else float(rng.uniform(0, 3)),
            size_semitones=_size(rng),
            unison_cents=_mistuning(rng) if is_piano else 0.0,
            stretch=float(rng.uniform(0, 1.4)) if is_piano else 0.0,
        )
    is_organ = entry.class_name == "organ"
    chance = 0.7 if entry.instrument in WITH_VIBRATO else 0.0 if is_organ else 0.7 * 0.4
    has_vibrato = rng.random() < chance
    return Voice(
        entry,
        gain_db=float(rng.uniform(-4, 4)),
        dynamic_db=float(rng.uniform(20, 35)),
        balance=float(rng.uniform(0, 0.5)),
        release_s=float(rng.uniform(0.015, 0.07)),
        detune_cents=float(rng.uniform(2, 8)),
        vibrato_cents=50 * float(rng.beta(1.5, 2.5)) if has_vibrato else 0.0,
        vibrato_hz=float(rng.uniform(4.5, 7.0)),
        line=random_line(not is_organ, rng),
        size_semitones=_size(rng),
    )


def _size(rng: Rng) -> float:
    """Draw a shift of the resonances in semitones, for a larger or smaller instrument; often 0."""
    return float(rng.uniform(-3, 3)) if rng.random() < 0.4 else 0.0


def _detuning(rng: Rng) -> float:
    """Draw the standard deviation of a piano's tuning in cents: 0.5 (good) to 10 (poor)."""
    return float(np.exp(rng.uniform(np.log(0.5), np.log(10))))


def _mistuning(rng: Rng) -> float:
    """Draw the standard deviation, in cents, between the two strings of a piano note; often 0."""
    return float(np.exp(rng.uniform(np.log(0.3), np.log(8)))) if rng.random() < 0.6 else 0.0


POLYPHONIC = ("electric piano", "harpsichord", "organ", "plucked", "mallets")
"""Classes, in addition to the piano, that can play all parts of a score."""
PIANO = {"solo piano": 0.86, "pop piano": 0.86, "solo strings": 0.35}
"""Fraction of a group's scores that are played on a piano."""
OTHERS_PIANO = 0.42  # this fraction for all other groups
REORCHESTRATED = 0.5
"""Fraction of the scores not played on a piano that get new instruments. Piano scores always do."""
_SONG_VOICE = 68  # program (oboe) that the corpus's songs use for the voice


def assign_instruments(
    piece: Piece, notes: Notes, usable: Sequence[Instrument], rng: Rng
) -> list[Instrument]:
    """Draw an instrument for each part."""
    parts = len(piece.programs)
    mode = _mode(piece.group, rng)
    keyboards = [entry for entry in usable if entry.family == "piano"]
    if mode == "piano" and keyboards:
        return [sample_instrument(keyboards, rng)] * parts
    polyphonic = [entry for entry in usable if entry.class_name in POLYPHONIC]
    if mode == "polyphonic" and polyphonic:
        return [_fitting(polyphonic, notes.pitch, polyphonic, rng)] * parts
    chosen = []
    for part, program in enumerate(piece.programs):
        candidates = usable
        if mode == "keep":
            sung = piece.group == "songs" and program == _SONG_VOICE
            number = VOICE if sung else class_of(program)
            candidates = [entry for entry in usable if entry.number == number]
        elif mode in ("strings", "winds"):
            candidates = [entry for entry in usable if entry.family == mode]
        chosen.append(_fitting(candidates, notes.pitch[notes.part == part], usable, rng))
    return chosen


def _mode(group: str, rng: Rng) -> str:
    """Draw the instruments of a score: "piano", "strings", "winds", the written ones ("keep"), any
    instruments ("mixed"), or one guitar, organ etc. for all parts ("polyphonic")."""
    if rng.random() < PIANO.get(group, OTHERS_PIANO):
        return "piano"
    kinds = ["strings", "winds", "mixed", "polyphonic"]
    if group in KEYBOARD_GROUPS:
        return str(rng.choice(["polyphonic", *kinds[:3]], p=[0.6, 0.1, 0.1, 0.2]))
    shares = REORCHESTRATED * np.array([0.1, 0.2, 0.4, 0.3])
    return str(rng.choice(["keep", *kinds], p=[1 - REORCHESTRATED, *shares]))


def _fitting(
    candidates: Sequence[Instrument],
    pitch: NDArray[np.int16],
    usable: Sequence[Instrument],
    rng: Rng,
) -> Instrument:
    """Draw one of the candidates that can play 97 % of the notes, or else one of ``usable`` that
    can. If none can, return the usable instrument that can play the most notes."""
    for entries in (candidates, usable):
        able = [entry for entry in entries if _coverage(entry, pitch) >= 0.97]
        if able:
            return sample_instrument(able, rng)
    return max(usable, key=lambda entry: _coverage(entry, pitch))


def _coverage(entry: Instrument, pitch: NDArray[np.int16]) -> float:
    """Return the fraction of notes within 3 semitones of the recorded range; 1 without notes."""
    low, high = entry.range
    in_range = (pitch >= low - 3) & (pitch <= high + 3)
    return float(in_range.mean()) if len(pitch) else 1.0


def sample_instrument(entries: Sequence[Instrument], rng: Rng) -> Instrument:
    """Draw an entry. All classes are equally likely, regardless of how many entries they have.
    Within a class, entries with more notes and layers are more likely."""
    classes = sorted({entry.number for entry in entries})
    number = classes[rng.integers(len(classes))]
    of_class = [entry for entry in entries if entry.number == number]
    return draw(of_class, [_weight(entry) for entry in of_class], rng)


def _weight(entry: Instrument) -> float:
    layers = min(4, len(np.unique(entry.velocity)))
    share = (1 + layers) * min(1, len(entry.midi) / 12)
    if entry.name.startswith("sharc_"):  # synthesised from spectra, without attack noise
        return 0.1 * share
    return share if entry.recorded else 0.35 * share
