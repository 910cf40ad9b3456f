"""From a score to a performance: timing, dynamics and instruments of its notes.

Engraved scores are mechanical: exact times, constant dynamics, notes of full length, no pedal. A
network would learn to rely on that without the changes made here.
"""

import numpy as np
from numpy.typing import NDArray

from training.arrays import F32, F64, Rng
from training.music.notes import Notes
from training.music.synth.bank import Bank, Instrument
from training.music.synth.casting import cast
from training.music.synth.config import SynthConfig
from training.music.synth.dampers import (
    changed_pedal,
    held_by_pedal,
    invented_pedal,
    pedal_depths,
    random_dampers,
)
from training.music.synth.lines import random_line
from training.music.synth.render import Voice, shorten_repeats
from training.music.synth.scores import Piece

PITCH_LOW, PITCH_HIGH = 21, 108  # the piano's range; all labels lie in it
MIN_NOTE_S = 0.04
VELOCITY_MIN, VELOCITY_MAX = 12, 122
PIANOS = ("piano", "electric_piano", "electric_grand")
"""Instruments with dampers and a sustain pedal."""
SHAKEN = ("violin", "viola", "cello", "contrabass", "voice", "choir")
"""Bowed and sung: usually with vibrato."""
OTHERS_VIBRATO = 0.4  # relative frequency of vibrato in other voices; organs have none
RESIZED = 0.4  # fraction of the voices whose instrument is larger or smaller than the recorded one
MISTUNED = 0.5  # fraction of the pianos whose unisons beat more than the recorded ones
RINGING = ("harp", "celtic harp", "zither", "vibraphone", "glockenspiel")  # their notes ring on


def perform(
    piece: Piece, start_s: float, seconds: float, config: SynthConfig, rng: Rng
) -> tuple[Notes, F64]:
    """Humanised notes of ``seconds`` of a piece from ``start_s``, and its pedal presses. Times
    count from the start of the excerpt. Parts stay as in the score; the pedal is not applied yet,
    as it affects only pianos."""
    tempo = float(np.exp(rng.uniform(np.log(config.tempo_min), np.log(config.tempo_max))))
    begin, end = np.searchsorted(piece.notes.onset, [start_s, start_s + seconds * tempo])
    notes = piece.notes.where(np.arange(begin, end))
    lead = float(rng.uniform(0.0, 0.8))
    # Rubato: local tempi drawn every few seconds, integrated to a monotone map of time.
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
        length = (offset - onset) * np.clip(
            rng.uniform(0.55, 1.05) + rng.normal(0, 0.08, len(onset)), 0.25, 1.1
        )
        offset = onset + length
    offset = np.maximum(offset, onset + MIN_NOTE_S)
    transpose = _transposition(notes.pitch, rng)
    pitch = notes.pitch + transpose
    notes = notes.moved(
        onset=onset,
        offset=offset,
        pitch=pitch.astype(np.int16),
        velocity=_dynamics(notes, onset, piece.expressive, seconds, rng),
    )
    inside = (pitch >= PITCH_LOW) & (pitch <= PITCH_HIGH) & (onset < seconds)
    notes = notes.where(inside)
    return notes.where(np.argsort(notes.onset, kind="stable")), pedal


def _transposition(pitch: NDArray[np.int16], rng: Rng) -> int:
    reach = 12 if rng.random() < 0.2 else 5
    shift = int(rng.integers(-reach, reach + 1))
    if not len(pitch):
        return shift
    return int(
        np.clip(shift, min(0, PITCH_LOW - int(pitch.min())), max(0, PITCH_HIGH - int(pitch.max())))
    )


def _dynamics(notes: Notes, onset: F64, expressive: bool, seconds: float, rng: Rng) -> F32:
    """Velocities as played: phrases swell and fade, parts and notes differ."""
    if expressive:
        mean = float(notes.velocity.mean()) if len(notes) else 64.0
        velocity = mean + (notes.velocity - mean) * rng.uniform(0.8, 1.3) + rng.normal(0, 14)
    else:
        knots = np.arange(0, seconds + 12, rng.uniform(1.5, 6.0))
        level = rng.uniform(30, 105) + rng.normal(0, rng.uniform(4, 18), len(knots))
        parts = rng.normal(0, 7, int(notes.part.max(initial=0)) + 1)
        velocity = np.interp(onset, knots, level) + parts[notes.part]
        velocity = velocity + rng.normal(0, rng.uniform(2, 8), len(onset))
    return np.clip(velocity, VELOCITY_MIN, VELOCITY_MAX).astype(np.float32)


def orchestrate(
    bank: Bank,
    piece: Piece,
    notes: Notes,
    pedal: F64,
    config: SynthConfig,
    rng: Rng,
    only: tuple[str, ...] | None = None,
) -> tuple[Notes, list[Voice], F64 | None]:
    """Assigns an instrument to each part: notes, whose ``part`` indexes the voices, and the pedal.

    The pedal is [presses, 3] of begin s, end s and depth, or None if no piano plays. Held-out
    timbres are not used; for validation, ``only`` names those to use instead. Notes outside an
    instrument's range are dropped when rendered.
    """
    exclude = config.held_out if only is None else tuple(set(bank.instruments) - set(only))
    usable = [entry for entry in bank.instruments.values() if entry.name not in exclude]
    if not usable:
        raise ValueError("the hold-outs leave no instrument to play on")
    chosen = cast(piece, notes, usable, config, rng)
    # Staves given to the same instrument become one voice: it has one damper per string.
    part_voice = np.zeros(len(piece.programs), np.int16)
    voices: list[Voice] = []
    shared: dict[str, int] = {}
    for part, entry in enumerate(chosen):
        if not entry.sustained and entry.name in shared:
            part_voice[part] = shared[entry.name]
            continue
        shared[entry.name] = part_voice[part] = len(voices)
        voices.append(voice_for(entry, config, rng))
    numbers = np.array([voice.instrument.number for voice in voices], np.int8)
    voice_of = part_voice[notes.part]
    notes = notes.moved(part=voice_of, instrument=numbers[voice_of])
    piano_voices = [i for i, voice in enumerate(voices) if voice.dampers]
    if not piano_voices:
        presses = None
    else:
        if not len(pedal) and rng.random() < 0.5:
            pedal = invented_pedal(notes, rng)
        presses = pedal_depths(changed_pedal(pedal, config.pedal_cap_s), rng)
        extended = held_by_pedal(notes, presses)
        on_piano = np.isin(notes.part, piano_voices)
        notes = notes.lengthened(np.where(on_piano, extended.offset, notes.offset))
    return shorten_repeats(notes), voices, presses


def voice_for(entry: Instrument, config: SynthConfig, rng: Rng) -> Voice:
    """A random way of playing an instrument."""
    if not entry.sustained:
        release_s = (
            rng.uniform(0.2, 0.8) if entry.instrument in RINGING else rng.uniform(0.02, 0.08)
        )
        return Voice(
            entry,
            gain_db=float(rng.uniform(-3, 3)),
            dynamic_db=float(rng.uniform(25, 45)),
            balance=float(rng.uniform(0, 1)),
            release_s=float(release_s),
            dampers=random_dampers(rng) if entry.instrument in PIANOS else None,
            detune_cents=float(rng.uniform(0, 3)),
            size_semitones=_size(rng),
            unison_cents=_mistuning(rng) if entry.instrument == "piano" else 0.0,
        )
    shaken = rng.random() < config.vibrato_probability * (
        1.0 if entry.instrument in SHAKEN else OTHERS_VIBRATO * (entry.class_name != "organ")
    )
    return Voice(
        entry,
        gain_db=float(rng.uniform(-4, 4)),
        dynamic_db=float(rng.uniform(20, 35)),
        balance=float(rng.uniform(0, 0.5)),
        release_s=float(rng.uniform(0.015, 0.07)),
        detune_cents=float(rng.uniform(2, 8)),
        vibrato_cents=50 * float(rng.beta(1.5, 2.5)) if shaken else 0.0,
        vibrato_hz=float(rng.uniform(4.5, 7.0)),
        line=random_line(entry.class_name != "organ", rng),
        size_semitones=_size(rng),
    )


def _size(rng: Rng) -> float:
    """Semitones by which the resonances of an instrument are moved."""
    return float(rng.uniform(-3, 3)) if rng.random() < RESIZED else 0.0


def _mistuning(rng: Rng) -> float:
    """Cents between the strings of a piano: from just tuned to long ago."""
    return float(np.exp(rng.uniform(np.log(0.3), np.log(6)))) if rng.random() < MISTUNED else 0.0
