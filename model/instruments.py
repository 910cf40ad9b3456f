"""Instrument classes and their General MIDI programs (level 1, counted from 0)."""

from collections.abc import Mapping

PROGRAMS: Mapping[str, int] = {
    "piano": 0,
    "electric piano": 4,
    "harpsichord": 6,
    "organ": 19,
    "plucked": 24,
    "violin": 40,
    "viola": 41,
    "cello": 42,
    "contrabass": 43,
    "flute": 73,
    "oboe": 68,
    "clarinet": 71,
    "bassoon": 70,
    "saxophone": 65,
    "horn": 60,
    "brass": 56,
    "voice": 52,
    "mallets": 12,
}
"""Program of each instrument class in MIDI files."""

LABELS: Mapping[str, str] = {"plucked": "guitar"}
"""Label for the user, if the name of an instrument class is not the usual word."""

LABELS_TO_INSTRUMENTS: Mapping[str, str] = {label: name for name, label in LABELS.items()}

INSTRUMENTS = tuple(PROGRAMS)  # instrument classes; the index is the class number
INSTRUMENT_HEADS = tuple(f"instrument:{name}" for name in INSTRUMENTS)

UNKNOWN = -1  # class number of an unknown instrument

_CLASSES: tuple[tuple[range, str], ...] = (
    (range(0, 2), "piano"),
    (range(2, 3), "electric piano"),
    (range(3, 4), "piano"),
    (range(4, 6), "electric piano"),
    (range(6, 8), "harpsichord"),
    (range(8, 16), "mallets"),
    (range(16, 24), "organ"),
    (range(24, 32), "plucked"),
    (range(32, 33), "contrabass"),
    (range(33, 40), "plucked"),
    (range(40, 41), "violin"),
    (range(41, 42), "viola"),
    (range(42, 43), "cello"),
    (range(43, 44), "contrabass"),
    (range(45, 47), "plucked"),
    (range(52, 55), "voice"),
    (range(56, 60), "brass"),
    (range(60, 61), "horn"),
    (range(61, 64), "brass"),
    (range(64, 68), "saxophone"),
    (range(68, 70), "oboe"),
    (range(70, 71), "bassoon"),
    (range(71, 72), "clarinet"),
    (range(72, 80), "flute"),
    (range(104, 108), "plucked"),
    (range(110, 111), "violin"),
)
_CLASS_OF = {
    program: INSTRUMENTS.index(name) for programs, name in _CLASSES for program in programs
}


def class_of(program: int) -> int:
    """Return the class number of a MIDI program. It is UNKNOWN for programs without a class, such
    as string ensembles, synth leads and pads, and sound effects."""
    return _CLASS_OF.get(program, UNKNOWN)


def predicted_instruments(heads: tuple[str, ...]) -> tuple[str, ...]:
    """Return the instrument classes that these heads predict, ordered by class number."""
    return tuple(
        name for name, head in zip(INSTRUMENTS, INSTRUMENT_HEADS, strict=True) if head in heads
    )
