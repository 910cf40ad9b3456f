"""The instrument class of an entry of the note bank."""

from typing import Any

from model.config import INSTRUMENTS

UNKNOWN = -1
"""Class of entries whose instrument is not clear, such as a mixed string section."""
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
    """Index of the class of a bank entry in ``INSTRUMENTS``; :data:`UNKNOWN` where it is unclear.

    Plucked strings of all instruments are one class: a pizzicato sounds more like a guitar than
    like a bowed string. A section of one instrument counts as that instrument.
    """
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
