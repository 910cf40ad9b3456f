"""Music transcription in three lines: recordings and live audio become notes.

    import rse_transcribe

    transcription = rse_transcribe.transcribe("song.mp3")
    transcription.save("song.mid")

The names below are imported as they are used, so that ``import rse_transcribe`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rse_transcribe.layers import ResidualShuffleExchange
    from rse_transcribe.models import available_models, load
    from rse_transcribe.recordings import transcribe
    from rse_transcribe.streams import Stream
    from rse_transcribe.transcription import Note, Transcription
    from service.notes.events import NoteEvent

__all__ = [
    "Note",
    "NoteEvent",
    "ResidualShuffleExchange",
    "Stream",
    "Transcription",
    "available_models",
    "load",
    "transcribe",
]

__version__ = version("rse-transcribe")

_HOMES = {
    "Note": "rse_transcribe.transcription",
    "NoteEvent": "service.notes.events",
    "ResidualShuffleExchange": "rse_transcribe.layers",
    "Stream": "rse_transcribe.streams",
    "Transcription": "rse_transcribe.transcription",
    "available_models": "rse_transcribe.models",
    "load": "rse_transcribe.models",
    "transcribe": "rse_transcribe.recordings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
