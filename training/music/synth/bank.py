"""The note bank: recorded single notes of many instruments, ready for pitch-shifted reading.

On first use the notes are decoded, upsampled by :data:`OVERSAMPLING` (so that linear interpolation
is accurate enough), given seamless loops and written to one memory-mapped file in the cache folder,
which all worker processes share.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from model.instruments import UNKNOWN
from model.storage import replace_file
from training.arrays import F32, I64

_CLASSES = {
    "electric_grand": "electric piano",
    "electric_piano": "electric piano",
    "flute_staccato": "flute",
    "trumpet": "brass",
    "trombone": "brass",
    "tuba": "brass",
    "tuba_staccato": "brass",
    "choir": "voice",
    "tremolo": None,
}
"""Classes of instruments that are not named like their class or family."""


def instrument_class(entry: dict[str, Any]) -> int:
    """Index of the class of a bank entry in ``INSTRUMENTS``; UNKNOWN if it is unclear, as of
    mixed strings. A pizzicato counts as plucked, a section of one instrument as that."""
    if "class" in entry:
        return INSTRUMENTS.index(entry["class"])
    instrument, family = entry["instrument"], entry["family"]
    if "sections" in entry.get("source", ""):  # one entry made of several instruments
        return UNKNOWN
    if family in ("plucked", "mallets"):
        return INSTRUMENTS.index(family)
    if family == "strings" and entry["kind"] == "decaying":
        return INSTRUMENTS.index("plucked")
    if instrument.endswith("_sax"):
        return INSTRUMENTS.index("saxophone")
    name = _CLASSES.get(instrument, instrument)
    return INSTRUMENTS.index(name) if name in INSTRUMENTS else UNKNOWN


OVERSAMPLING = 2
"""Stored samples per output sample: keeps linear interpolation's images 26 dB down at 4 kHz."""
SILENCE_DB = -45.0  # a decaying note ends once its envelope stays this far below its peak
LOOP_CROSSFADE_S = 0.05
GUARD = 4  # zero samples after each note, so that interpolation may read one past the end
CACHE_VERSION = 4
ATTACK_WINDOW_S = 0.15
ATTACK_LEVEL = 0.2
"""A note begins when its envelope reaches this fraction of its peak in the attack window."""
ENVELOPE_BLOCK_S = 0.02
BALANCE_LIMIT_DB = 8.0
"""Natural loudness differences between the notes of a layer are kept up to this limit."""
NORMALISED = "normalised"
"""Entries with this word in their remark have lost the loudness of their notes: ``orig_peak_db`` is
meaningless."""
CORRECTED_CENTS = {("piano_salamander", 105): 38.0, ("piano_salamander", 108): 99.0}
"""Measured tuning of notes (entry, pitch) that the index gives as exact."""


HELD_OUT = tuple(
    "piano_iowa piano_iowa_full epiano_pianet harpsichord_pjcohen organ_vsco2 guitar_steel_iowa "
    "violin_vso2 violin_vsco2_raw viola_msgeneral cello_vsco2 contrabass_vsco2 contrabass_tonejs "
    "flute_vsco2 oboe_msgeneral clarinet_vsco2 bassoon_vsco2 sax_tenor_vcsl horn_vsco2 "
    "horn_vsco2_sus trombone_vsco2 choir_male_berklee vibraphone_vcsl".split()
)
"""Entries held out of training, for validation on unseen instruments: one independent set of
samples for each class with at least two, recorded if possible, together with all other entries of
the same instrument. For viola and oboe only sound fonts exist."""


@dataclass(frozen=True)
class Instrument:
    """One instrument of the bank; every array has one element per recorded note.

    ``start``, ``length``, ``loop_start``, ``loop_end``, ``onset`` and ``audible`` count stored
    (oversampled) samples; all but ``start`` are relative to the note's first sample.
    ``loop_end`` is 0 if the note has no loop.
    """

    name: str
    family: str
    instrument: str
    number: int  # class of the instrument, an index of ``INSTRUMENTS``; -1 if unclear
    recorded: bool  # false if the notes come from a sound font or are synthesised
    sustained: bool
    midi: F32  # sounding pitch, the measured tuning error included
    velocity: F32
    balance_db: F32
    start: I64
    length: I64
    loop_start: I64
    loop_end: I64
    onset: I64
    audible: I64

    @property
    def class_name(self) -> str:
        """Name of the instrument's class; empty if unclear."""
        return "" if self.number == UNKNOWN else INSTRUMENTS[self.number]

    @property
    def low(self) -> int:
        """Lowest recorded MIDI note."""
        return int(np.rint(self.midi.min()))

    @property
    def high(self) -> int:
        """Highest recorded MIDI note."""
        return int(np.rint(self.midi.max()))

    def pick(
        self, pitch: NDArray[Any], velocity: NDArray[Any], preference: NDArray[Any]
    ) -> NDArray[np.intp]:
        """The recorded note to use for each of n notes, shape [n]: a semitone of pitch shift costs
        as much as 8 steps of velocity, and ``preference`` adds a cost to each recorded note."""
        cost = 8.0 * np.abs(pitch[:, None] - self.midi[None, :])
        cost += np.abs(velocity[:, None] - self.velocity[None, :])
        cost += preference[None, :]
        return np.asarray(cost.argmin(axis=1))


@dataclass(frozen=True)
class Bank:
    """All instruments and the memory-mapped samples behind them."""

    instruments: dict[str, Instrument]
    samples: NDArray[np.int16]  # at ``OVERSAMPLING`` times ``sample_rate``
    sample_rate: int


def load_bank(folder: Path, cache: Path) -> Bank:
    """Open the bank in ``folder``, decoding it into ``cache`` on first use. Raises OSError for
    missing files and ValueError for a sound file of another rate than the index says."""
    index_bytes = (folder / "bank_index.json").read_bytes()
    index = json.loads(index_bytes)
    key = hashlib.sha256(index_bytes + bytes([CACHE_VERSION])).hexdigest()[:12]
    samples_path = cache / f"bank-{key}.npy"
    notes_path = cache / f"bank-{key}.json"
    if not (samples_path.exists() and notes_path.exists()):
        samples, notes = _decode(folder, index)
        replace_file(samples_path, lambda file: np.save(file, samples))
        replace_file(notes_path, lambda file: file.write(json.dumps(notes).encode()))
    notes = json.loads(notes_path.read_text())
    rate = int(index["sample_rate"])
    instruments = {
        name: _instrument(name, entry, notes[name]) for name, entry in index["instruments"].items()
    }
    return Bank(instruments, np.load(samples_path, mmap_mode="r"), rate)


def _decode(folder: Path, index: dict[str, Any]) -> tuple[NDArray[np.int16], dict[str, Any]]:
    rate = int(index["sample_rate"])
    chunks: list[NDArray[np.int16]] = []
    notes: dict[str, Any] = {}
    position = 0
    for name, entry in index["instruments"].items():
        audio, file_rate = soundfile.read(folder / entry["file"], dtype="float32")
        if file_rate != rate:
            raise ValueError(f"{entry['file']} is at {file_rate} Hz, its index says {rate} Hz")
        stored: list[dict[str, int]] = []
        for note in entry["notes"]:
            raw = audio[note["start"] : note["start"] + note["length"]]
            sound = soxr.resample(raw, rate, rate * OVERSAMPLING, quality="HQ")
            loop = [OVERSAMPLING * int(i) for i in note["loop"]] if note["loop"] else None
            if loop is not None:
                _make_seamless(sound, loop[0], loop[1], int(LOOP_CROSSFADE_S * rate * OVERSAMPLING))
            chunk = np.zeros(len(sound) + GUARD, np.int16)
            chunk[: len(sound)] = np.rint(np.clip(sound, -1, 1) * np.iinfo(np.int16).max)
            chunks.append(chunk)
            stored.append(
                {
                    "start": position,
                    "length": len(sound),
                    "onset": _onset(sound, note["onset_ms"] / 1000, rate * OVERSAMPLING),
                    "audible": _audible_length(sound, rate * OVERSAMPLING),
                }
            )
            position += len(chunk)
        notes[name] = stored
    return np.concatenate(chunks), notes


def _make_seamless(sound: F32, start: int, end: int, fade: int) -> None:
    """Blends the last ``fade`` samples before ``end`` into those before ``start``, in place, so
    that reading can jump from ``end`` to ``start`` without a click."""
    fade = min(fade, start, end - start)
    angle = np.linspace(0, np.pi / 2, fade, dtype=np.float32)
    sound[end - fade : end] *= np.cos(angle)
    sound[end - fade : end] += sound[start - fade : start] * np.sin(angle)


def _onset(sound: F32, indexed_s: float, rate: int) -> int:
    """Sample of the onset: the index's, or where a bowed or blown note is first heard, up to 25 ms
    earlier."""
    attack = np.abs(sound[: int(ATTACK_WINDOW_S * rate)])
    heard = int(np.argmax(attack >= ATTACK_LEVEL * attack.max(initial=0))) if len(attack) else 0
    return min(heard, round(indexed_s * rate))


def _audible_length(sound: F32, rate: int) -> int:
    """Samples until the envelope stays below SILENCE_DB of its peak."""
    block = max(1, int(ENVELOPE_BLOCK_S * rate))
    padded = np.zeros(-(-len(sound) // block) * block, np.float32)
    padded[: len(sound)] = np.abs(sound)
    envelope = padded.reshape(-1, block).max(axis=1)
    loud = np.flatnonzero(envelope > envelope.max() * 10 ** (SILENCE_DB / 20))
    return min(len(sound), (int(loud[-1]) + 1) * block) if len(loud) else 0


def _instrument(name: str, entry: dict[str, Any], stored: list[dict[str, int]]) -> Instrument:
    notes = entry["notes"]
    loops = [note["loop"] or [0, 0] for note in notes]
    layers = np.array([note["layer"] for note in notes])
    peak = np.array([note["orig_peak_db"] for note in notes], np.float32)
    balance = np.zeros(len(notes), np.float32)
    for layer in np.unique(layers):
        of_layer = layers == layer
        balance[of_layer] = peak[of_layer] - np.median(peak[of_layer])
    if NORMALISED in (entry.get("remark") or ""):
        balance[:] = 0
    cents = [CORRECTED_CENTS.get((name, note["midi"]), note["cents"]) for note in notes]
    return Instrument(
        name=name,
        family=entry["family"],
        instrument=entry["instrument"],
        number=instrument_class(entry),
        recorded=entry.get("recorded", "soundfont" not in entry.get("source", "")),
        sustained=entry["kind"] == "sustained",
        midi=np.array([n["midi"] + c / 100 for n, c in zip(notes, cents, strict=True)], np.float32),
        velocity=np.array([note["velocity"] for note in notes], np.float32),
        balance_db=np.clip(balance, -BALANCE_LIMIT_DB, BALANCE_LIMIT_DB),
        loop_start=OVERSAMPLING * np.array([loop[0] for loop in loops]),
        loop_end=OVERSAMPLING * np.array([loop[1] for loop in loops]),
        **{name: np.array([note[name] for note in stored]) for name in stored[0]},
    )


SAME_PITCH = 0.6  # recorded notes within this many semitones count as one pitch
LEAST = 0.1  # smaller shares would be inaudible and are left out

COHERENT = 0.6
"""Smallest correlation for mixing two recordings: below it, partials would cancel."""
COMPARED = 4096  # samples over which the correlation is computed


def neighbours(
    instrument: Instrument, pick: NDArray[np.intp], velocity: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.intp], F32]:
    """For n notes that play recording ``pick``: the recording to mix with it, and its share, [n].

    It is of the same pitch, from the layer next to the picked one on the side of the note's
    velocity. The share grows in proportion from 0 at the picked layer to 1 at the other, and is 0
    where there is no such recording.
    """
    recorded = instrument.velocity
    away = velocity - recorded[pick]
    # Distance of every recording from the picked one, in the direction of the note's velocity.
    distance = (recorded[None, :] - recorded[pick][:, None]) * np.sign(away)[:, None]
    near = np.abs(instrument.midi[None, :] - instrument.midi[pick][:, None]) < SAME_PITCH
    distance = np.where(near & (distance > 0), distance, np.inf)
    other = distance.argmin(axis=1)
    share = np.minimum(1, np.abs(away) / distance[np.arange(len(pick)), other])
    return other, np.where(share < LEAST, 0, share).astype(np.float32)


def mixed(sound: F32, other: F32, share: float) -> F32:
    """``share`` of ``other`` in ``sound``, equally long and aligned at their onsets.

    Incoherent recordings are not mixed; one of opposite polarity is inverted.
    """
    head, second = sound[:COMPARED], other[:COMPARED]
    strength = float(np.linalg.norm(head) * np.linalg.norm(second))
    correlation = float(head @ second) / max(strength, 1e-9)
    if abs(correlation) < COHERENT:
        return sound
    return sound + np.float32(share) * (np.float32(np.sign(correlation)) * other - sound)
