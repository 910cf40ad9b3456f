"""The note bank: recorded single notes of many instruments, prepared for pitch shifting.

On first use, the notes are decoded, upsampled (so that linear interpolation is accurate enough),
looped seamlessly and written to a file, which all worker processes map into memory.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from model.config import INSTRUMENTS, SAMPLE_RATE
from model.instruments import UNKNOWN
from model.storage import replace_file
from training.arrays import F32, I64
from training.music.recordings import digest, read_audio, to_pcm

_CLASSES = {"electric_grand": "electric piano", "choir": "voice"}
_CLASSES |= dict.fromkeys(("trumpet", "trombone", "tuba"), "brass")
"""Instrument classes that differ from the instrument's name and family, by instrument."""

OVERSAMPLING = 2  # keeps the images of linear interpolation 26 dB down at 4 kHz
STORED_RATE = OVERSAMPLING * SAMPLE_RATE
SILENCE_DB = -45.0  # a decaying note ends once its envelope stays this far below its peak
GUARD = 4  # number of zeros after each note, because interpolation reads beyond its end
CACHE_VERSION = 4
CORRECTED_CENTS = {("piano_salamander", 105): 38.0, ("piano_salamander", 108): 99.0}
"""Measured tuning, in cents, of notes (entry, pitch) whose tuning in the index is wrong."""

HELD_OUT = tuple(
    "piano_iowa piano_iowa_full epiano_pianet harpsichord_pjcohen organ_vsco2 guitar_steel_iowa "
    "violin_vso2 violin_vsco2_raw viola_msgeneral cello_vsco2 contrabass_vsco2 contrabass_tonejs "
    "flute_vsco2 oboe_msgeneral clarinet_vsco2 bassoon_vsco2 sax_tenor_vcsl horn_vsco2 "
    "horn_vsco2_sus trombone_vsco2 choir_male_berklee vibraphone_vcsl".split()
)
"""Entries that are used only for validation. If a class has at least two independent sets of
samples, all entries of one set are held out. It is a recorded set if there is one."""


@dataclass(frozen=True)
class Instrument:
    """One instrument of the bank. Every array has one element per recorded note. Positions and
    lengths are in samples at STORED_RATE. All positions but ``start`` are relative to ``start``."""

    name: str
    family: str
    instrument: str
    number: int  # class of the instrument, an index into ``INSTRUMENTS``, or UNKNOWN
    recorded: bool  # false if the notes come from a sound font or are synthesised
    sustained: bool  # false for instruments whose notes decay
    midi: F32  # sounding pitch, including the measured tuning error
    velocity: F32  # 1 to 127
    balance_db: F32  # recorded peak level relative to the median of the note's dynamic layer
    start: I64  # position in ``Bank.samples``
    length: I64
    loop_start: I64
    loop_end: I64  # 0 without a loop
    onset: I64
    audible: I64  # number of samples until the sound has faded (SILENCE_DB)

    @property
    def class_name(self) -> str:
        """Name of the instrument's class; empty if unknown."""
        return "" if self.number == UNKNOWN else INSTRUMENTS[self.number]

    @property
    def range(self) -> tuple[int, int]:
        """Lowest and highest recorded MIDI note."""
        return int(np.rint(self.midi.min())), int(np.rint(self.midi.max()))

    def pick(
        self, pitch: NDArray[Any], velocity: NDArray[Any], preference: NDArray[Any]
    ) -> NDArray[np.intp]:
        """Return the index of the cheapest recorded note for each of n notes. A semitone of shift
        costs as much as 8 steps of velocity. ``preference``, [recorded notes], adds to the cost."""
        cost = 8.0 * np.abs(pitch[:, None] - self.midi)
        cost += np.abs(velocity[:, None] - self.velocity)
        return np.asarray((cost + preference).argmin(axis=1))


@dataclass(frozen=True)
class Bank:
    """All instruments and their memory-mapped samples."""

    instruments: dict[str, Instrument]
    samples: NDArray[np.int16]  # at STORED_RATE


def load_bank(folder: Path, cache: Path) -> Bank:
    """Open the bank in ``folder``. On first use, decode it and write it to ``cache``. Raises
    OSError for missing indexes, and ValueError for sounds that are unreadable or not at
    SAMPLE_RATE."""
    index = read_index(folder / "bank_index.json")
    key = digest((folder / "bank_index.json").read_bytes(), bytes([CACHE_VERSION]))
    samples_path, notes_path = (cache / f"bank-{key}.{suffix}" for suffix in ("npy", "json"))
    if not (samples_path.exists() and notes_path.exists()):
        samples, notes = _decode(folder, index)
        replace_file(samples_path, lambda file: np.save(file, samples))
        replace_file(notes_path, lambda file: file.write(json.dumps(notes).encode()))
    notes = json.loads(notes_path.read_text())
    instruments = {
        name: _instrument(name, entry, notes[name]) for name, entry in index["instruments"].items()
    }
    return Bank(instruments, np.load(samples_path, mmap_mode="r"))


def read_index(path: Path) -> dict[str, Any]:
    """Read an index of sounds. Raises OSError if it is missing, and ValueError if its sample rate
    is not SAMPLE_RATE."""
    index: dict[str, Any] = json.loads(path.read_bytes())
    if index["sample_rate"] != SAMPLE_RATE:
        raise ValueError(f"{path} is at {index['sample_rate']} Hz, not {SAMPLE_RATE} Hz")
    return index


def _decode(folder: Path, index: dict[str, Any]) -> tuple[NDArray[np.int16], dict[str, Any]]:
    chunks: list[NDArray[np.int16]] = []
    notes: dict[str, Any] = {}
    position = 0
    for name, entry in index["instruments"].items():
        audio, rate = read_audio(folder / entry["file"])
        if rate != SAMPLE_RATE:
            raise ValueError(f"{entry['file']} is at {rate} Hz, not {SAMPLE_RATE} Hz as indexed")
        notes[name] = []
        for note in entry["notes"]:
            raw = audio[note["start"] : note["start"] + note["length"]]
            sound = soxr.resample(raw, SAMPLE_RATE, STORED_RATE, quality="HQ")
            if note["loop"]:
                _make_seamless(sound, *(OVERSAMPLING * int(i) for i in note["loop"]))
            chunks.append(np.pad(to_pcm(sound), (0, GUARD)))
            notes[name].append(
                {
                    "start": position,
                    "length": len(sound),
                    "onset": _onset(sound, note["onset_ms"] / 1000),
                    "audible": _audible_length(sound),
                }
            )
            position += len(sound) + GUARD
    return np.concatenate(chunks), notes


def _make_seamless(sound: F32, start: int, end: int) -> None:
    """Crossfade, in place, the samples before ``end`` with the samples before ``start``. Playback
    can then jump from ``end`` to ``start`` without a click."""
    fade = min(int(0.05 * STORED_RATE), start, end - start)
    angle = np.linspace(0, np.pi / 2, fade, dtype=np.float32)
    sound[end - fade : end] *= np.cos(angle)
    sound[end - fade : end] += sound[start - fade : start] * np.sin(angle)


def _onset(sound: F32, indexed_s: float) -> int:
    """Return the onset in samples at STORED_RATE. It is the index's onset, or the first audible
    sample if that is earlier (by up to 25 ms in bowed and blown notes)."""
    attack = np.abs(sound[: int(0.15 * STORED_RATE)])
    audible = int(np.argmax(attack >= 0.2 * attack.max(initial=0))) if len(attack) else 0
    return min(audible, round(indexed_s * STORED_RATE))


def _audible_length(sound: F32) -> int:
    """Return the number of samples after which the envelope stays below SILENCE_DB, relative to its
    peak."""
    block = int(0.02 * STORED_RATE)
    envelope = np.maximum.reduceat(np.abs(sound), np.arange(0, len(sound), block))
    loud = np.flatnonzero(envelope > envelope.max() * 10 ** (SILENCE_DB / 20))
    return min(len(sound), (int(loud[-1]) + 1) * block) if len(loud) else 0


def _instrument(name: str, entry: dict[str, Any], stored: list[dict[str, int]]) -> Instrument:
    notes = entry["notes"]
    loops = OVERSAMPLING * np.array([note["loop"] or [0, 0] for note in notes])
    layers = np.array([note["layer"] for note in notes])
    balance = np.array([note["orig_peak_db"] for note in notes], np.float32)
    for layer in np.unique(layers):
        balance[layers == layer] -= np.median(balance[layers == layer])
    if "normalised" in (entry.get("remark") or ""):  # the peaks do not reflect the loudness
        balance[:] = 0
    cents = [CORRECTED_CENTS.get((name, note["midi"]), note["cents"]) for note in notes]
    return Instrument(
        name=name,
        family=entry["family"],
        instrument=entry["instrument"],
        number=_class_number(entry),
        recorded=entry.get("recorded", "soundfont" not in entry.get("source", "")),
        sustained=entry["kind"] == "sustained",
        midi=np.array([n["midi"] + c / 100 for n, c in zip(notes, cents, strict=True)], np.float32),
        velocity=np.array([note["velocity"] for note in notes], np.float32),
        balance_db=np.clip(balance, -8, 8),
        loop_start=loops[:, 0],
        loop_end=loops[:, 1],
        **{name: np.array([note[name] for note in stored]) for name in stored[0]},
    )


def _class_number(entry: dict[str, Any]) -> int:
    """Return the class number of a bank entry, or UNKNOWN if it has none, such as mixed strings.
    Pizzicato strings are in the class "plucked"."""
    name = entry.get("class", entry["instrument"])
    if "class" not in entry:
        if "sections" in entry.get("source", ""):  # the entry consists of several instruments
            return UNKNOWN
        if entry["family"] in ("plucked", "mallets"):
            name = entry["family"]
        elif entry["family"] == "strings" and entry["kind"] == "decaying":
            name = "plucked"
    name = "saxophone" if name.endswith("_sax") else name.removesuffix("_staccato")
    name = _CLASSES.get(name, name).replace("_", " ")
    return INSTRUMENTS.index(name) if name in INSTRUMENTS else UNKNOWN


def neighbours(
    instrument: Instrument, pick: NDArray[np.intp], velocity: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.intp], F32]:
    """Return for each of n notes a second recording to mix with the picked one, and its share. The
    second recording has the same pitch and is from the next dynamic layer in the direction of the
    note's velocity. The share rises from 0 at the velocity of the picked recording to 1 at that of
    the second. It is 0 if it would be below 0.1, or if there is no second recording."""
    recorded = instrument.velocity
    away = velocity - recorded[pick]
    # Distance in velocity of each recording from the picked one, towards the note's velocity.
    distance = (recorded - recorded[pick][:, None]) * np.sign(away)[:, None]
    near = np.abs(instrument.midi - instrument.midi[pick][:, None]) < 0.6  # semitones
    distance = np.where(near & (distance > 0), distance, np.inf)
    share = np.minimum(1, np.abs(away) / distance.min(axis=1))
    return distance.argmin(axis=1), np.where(share < 0.1, 0, share).astype(np.float32)


def mix_layers(sound: F32, other: F32, share: float) -> F32:
    """Mix ``share`` of ``other`` into ``sound``. Both have the same length and are aligned at their
    onsets. Incoherent recordings are not mixed. A recording of opposite polarity is inverted."""
    head, second = sound[:4096], other[:4096]
    strength = float(np.linalg.norm(head) * np.linalg.norm(second))
    correlation = float(head @ second) / max(strength, 1e-9)
    if abs(correlation) < 0.6:  # partials would cancel each other
        return sound
    return sound + np.float32(share) * (np.float32(np.sign(correlation)) * other - sound)
