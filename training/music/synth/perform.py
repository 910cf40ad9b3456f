"""From a score to a performance: when and how loudly its notes are played, and by what.

Engraved scores are mechanical: times are exact, dynamics constant, notes last their full value and
nobody presses the pedal. Without the changes made here a network would come to rely on that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.music.synth.bank import Bank, Instrument
from training.music.synth.config import SynthConfig
from training.music.synth.render import Voice, shorten_repeats
from training.music.synth.scores import Notes, Piece, with_pedal

PITCH_LOW, PITCH_HIGH = 21, 108
"""The piano's range; all labels lie in it."""
MIN_NOTE_S = 0.04
VELOCITY_MIN, VELOCITY_MAX = 12, 122
BOWED = ("violin", "viola", "cello", "contrabass")
OTHERS_VIBRATO = 0.4
"""Voices that are not bowed play with vibrato so much less often."""

# General MIDI program -> instruments of the bank that may stand for it, best first. Programs 52
# (choir) and 68 (which the songs use for the voice) have several, as nothing sings in the bank.
_PROGRAMS: tuple[tuple[range, tuple[str, ...]], ...] = (
    (range(0, 6), ("piano",)),
    (range(6, 8), ("harpsichord",)),
    (range(8, 24), ("piano", "harpsichord")),
    (range(24, 40), ("pizzicato", "contrabass")),
    (range(40, 41), ("violin",)),
    (range(41, 42), ("viola",)),
    (range(42, 43), ("cello",)),
    (range(43, 44), ("contrabass",)),
    (range(44, 45), ("tremolo",)),
    (range(45, 48), ("pizzicato",)),
    (range(48, 56), ("viola", "violin", "horn", "clarinet", "cello")),
    (range(56, 64), ("horn",)),
    (range(64, 70), ("oboe", "clarinet", "flute", "violin", "horn", "viola")),
    (range(70, 71), ("bassoon",)),
    (range(71, 72), ("clarinet",)),
    (range(72, 80), ("flute",)),
    (range(80, 128), ("clarinet", "violin", "viola")),
)


def ensemble_group(ensemble: str) -> str:
    """The group of ``SynthConfig.ensemble_weights`` that an ensemble's name belongs to."""
    if ensemble == "solo piano":
        return "solo piano"
    if "voice" in ensemble:
        return "songs"
    if ensemble == "string quartet":
        return "quartets"
    if ensemble in ("solo violin", "solo viola", "solo cello"):
        return "solo strings"
    return "solo winds" if ensemble.startswith("solo") else "chamber"


def perform(
    piece: Piece, start_s: float, seconds: float, config: SynthConfig, rng: np.random.Generator
) -> tuple[Notes, NDArray[np.float64]]:
    """Humanised notes of ``seconds`` of a piece from ``start_s`` on, and its pedal presses.

    Times count from the excerpt's beginning. Parts stay as in the score; the pedal is not yet
    applied, as only a piano follows it.
    """
    tempo = float(np.exp(rng.uniform(np.log(config.tempo_min), np.log(config.tempo_max))))
    begin, end = np.searchsorted(piece.notes.onset, [start_s, start_s + seconds * tempo])
    notes = piece.notes.where(np.arange(begin, end))
    lead = float(rng.uniform(0.0, 0.8))
    # Rubato: local tempi drawn every few seconds, integrated to a monotone map of time.
    spread = 0.01 if piece.expressive else float(rng.uniform(0.02, 0.1))
    knots = np.arange(0, seconds * tempo + 60, rng.uniform(0.7, 3.0))
    pace = np.exp(rng.normal(0, spread, len(knots))) / tempo
    played = lead + np.concatenate([[0], np.cumsum(np.diff(knots) * pace[1:])])

    def warp(time: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(time - start_s, knots, played)

    onset, offset = warp(notes.onset), warp(notes.offset)
    pedal = piece.pedal[piece.pedal[:, 1] > start_s]
    pedal = warp(np.maximum(pedal, start_s))
    pedal = pedal[pedal[:, 1] > pedal[:, 0]]
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


def _transposition(pitch: NDArray[np.int16], rng: np.random.Generator) -> int:
    reach = 12 if rng.random() < 0.2 else 5
    shift = int(rng.integers(-reach, reach + 1))
    if not len(pitch):
        return shift
    return int(
        np.clip(shift, min(0, PITCH_LOW - int(pitch.min())), max(0, PITCH_HIGH - int(pitch.max())))
    )


def _dynamics(
    notes: Notes,
    onset: NDArray[np.float64],
    expressive: bool,
    seconds: float,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Velocities as played: phrases swell and fade, parts and single notes differ."""
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


def invented_pedal(notes: Notes, rng: np.random.Generator) -> NDArray[np.float64]:
    """Pedal presses for a score that has none: changed at some onsets, just after the note."""
    changes = [0.0]
    wanted = rng.uniform(0.4, 3.0, max(1, len(notes)))
    for onset in notes.onset:
        if onset - changes[-1] >= wanted[len(changes) % len(wanted)]:
            changes.append(float(onset))
    times = np.array(changes)
    if len(times) < 2:
        return np.zeros((0, 2))
    presses = np.stack([times[:-1] + rng.uniform(0.03, 0.12), times[1:] + 0.02], axis=1)
    return presses[rng.random(len(presses)) < rng.uniform(0.4, 1.0)]


def orchestrate(
    bank: Bank,
    piece: Piece,
    notes: Notes,
    pedal: NDArray[np.float64],
    config: SynthConfig,
    rng: np.random.Generator,
    only: tuple[str, ...] | None = None,
) -> tuple[Notes, list[Voice]]:
    """Give each part to an instrument; ``part`` of the returned notes indexes the voices.

    Training leaves the held-out timbres alone; ``only`` names the ones to use instead (for
    validation). Notes outside an instrument's range are dropped when rendered.
    """
    exclude = config.held_out.names if only is None else tuple(set(bank.instruments) - set(only))
    usable = [entry for entry in bank.instruments.values() if entry.name not in exclude]
    if not usable:
        raise ValueError("the hold-outs leave no instrument to play on")
    pianos = [entry for entry in usable if entry.family == "piano"]
    mode = _mode(piece, config, rng)
    if mode == "piano" and pianos:
        chosen = dict.fromkeys(range(len(piece.programs)), pianos[rng.integers(len(pianos))])
    else:
        chosen = {
            part: _for_part(mode, program, notes.pitch[notes.part == part], usable, rng)
            for part, program in enumerate(piece.programs)
        }
    # Staves given to the same instrument become one voice: it has one damper per string.
    part_voice = np.zeros(len(piece.programs), np.int16)
    voices: list[Voice] = []
    shared: dict[str, int] = {}
    for part, entry in chosen.items():
        if not entry.sustained and entry.name in shared:
            part_voice[part] = shared[entry.name]
            continue
        shared[entry.name] = part_voice[part] = len(voices)
        voices.append(voice_for(entry, config, rng))
    notes = notes.moved(part=part_voice[notes.part])
    piano_voices = [i for i, voice in enumerate(voices) if voice.instrument.family == "piano"]
    if piano_voices:
        if not len(pedal) and rng.random() < 0.5:
            pedal = invented_pedal(notes, rng)
        extended = with_pedal(notes, pedal, config.pedal_cap_s)
        on_piano = np.isin(notes.part, piano_voices)
        notes = notes.lengthened(np.where(on_piano, extended.offset, notes.offset))
    return shorten_repeats(notes), voices


def _mode(piece: Piece, config: SynthConfig, rng: np.random.Generator) -> str:
    group = ensemble_group(piece.ensemble)
    piano = config.piano_probability
    others = config.reorchestrate_probability
    if group == "solo piano":
        piano = 1 - 0.28 * others
    elif group == "solo strings":
        piano = config.string_solo_piano_probability
    if rng.random() < piano:
        return "piano"
    if group == "solo piano":
        return str(rng.choice(["strings", "winds", "mixed"]))
    shares = others * np.array([0.4, 0.3, 0.3])
    return str(rng.choice(["keep", "strings", "winds", "mixed"], p=[1 - others, *shares]))


def _for_part(
    mode: str,
    program: int,
    pitch: NDArray[np.int16],
    usable: list[Instrument],
    rng: np.random.Generator,
) -> Instrument:
    """An instrument of the wanted kind that reaches the part's notes, or the one that fits best."""
    if mode == "keep":
        wanted = next(kinds for programs, kinds in _PROGRAMS if program in programs)
        candidates = [e for e in usable if e.instrument in wanted]
    elif mode == "mixed":
        candidates = usable
    else:
        candidates = [e for e in usable if e.family == mode]
    for entries in (candidates, usable):
        reached = [_coverage(entry, pitch) for entry in entries]
        fitting = [e for e, share in zip(entries, reached, strict=True) if share >= 0.97]
        if fitting:
            return fitting[rng.integers(len(fitting))]
    return max(usable, key=lambda entry: _coverage(entry, pitch))


def _coverage(entry: Instrument, pitch: NDArray[np.int16]) -> float:
    if not len(pitch):
        return 1.0
    return float(((pitch >= entry.low - 3) & (pitch <= entry.high + 3)).mean())


def voice_for(entry: Instrument, config: SynthConfig, rng: np.random.Generator) -> Voice:
    """A random way of playing an instrument."""
    if not entry.sustained:
        return Voice(
            entry,
            gain_db=float(rng.uniform(-3, 3)),
            dynamic_db=float(rng.uniform(25, 45)),
            balance=float(rng.uniform(0, 1)),
            release_s=float(rng.uniform(0.05, 0.15)) if entry.family == "piano" else 0.06,
            detune_cents=float(rng.uniform(0, 3)),
        )
    shaken = rng.random() < config.vibrato_probability * (
        1.0 if entry.instrument in BOWED else OTHERS_VIBRATO
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
    )
