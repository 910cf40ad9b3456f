"""Music transcription: recordings and live audio to notes.

    import rse_transcribe

    transcription = rse_transcribe.transcribe("song.mp3")
    transcription.save("song.mid")

The names below are imported on first use, so that ``import rse_transcribe`` is fast.
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from rse_transcribe.arguments import available_models as available_models
    from rse_transcribe.arguments import load as load
    from rse_transcribe.recordings import IncompleteError as IncompleteError
    from rse_transcribe.recordings import Transcriber as Transcriber
    from rse_transcribe.recordings import transcribe as transcribe
    from rse_transcribe.streams import Stream as Stream
    from rse_transcribe.transcription import Transcription as Transcription
    from service.notes.events import Note as Note
    from service.notes.events import NoteEvent as NoteEvent
    from service.notes.events import PedalEvent as PedalEvent

    __version__: str

_HOMES = {
    "IncompleteError": "rse_transcribe.recordings",
    "Note": "service.notes.events",
    "NoteEvent": "service.notes.events",
    "PedalEvent": "service.notes.events",
    "Stream": "rse_transcribe.streams",
    "Transcriber": "rse_transcribe.recordings",
    "Transcription": "rse_transcribe.transcription",
    "available_models": "rse_transcribe.arguments",
    "load": "rse_transcribe.arguments",
    "transcribe": "rse_transcribe.recordings",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name == "__version__":  # fails if the package is not installed
        return _import_module("importlib.metadata").version("rse-transcribe")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(_import_module(_HOMES[name]), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("model", "service"):
            raise
        # The user's own model.py, or a folder named service, may precede the package on sys.path.
        hiding = getattr(_sys.modules.get(package), "__file__", None) or "something on sys.path"
        raise ImportError(
            f"{hiding} hides the package {package!r} of rse-transcribe: rename it, "
            "or start Python in another folder",
            name=package,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
