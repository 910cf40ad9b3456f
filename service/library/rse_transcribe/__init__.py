"""Music transcription in three lines: recordings and live audio become notes.

    import rse_transcribe

    transcription = rse_transcribe.transcribe("song.mp3")
    transcription.save("song.mid")

The names below are imported as they are used, so that ``import rse_transcribe`` costs nothing.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from rse_transcribe.layers import ResidualShuffleExchange as ResidualShuffleExchange
    from rse_transcribe.models import available_models as available_models
    from rse_transcribe.models import load as load
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
    "ResidualShuffleExchange": "rse_transcribe.layers",
    "Stream": "rse_transcribe.streams",
    "Transcriber": "rse_transcribe.recordings",
    "Transcription": "rse_transcribe.transcription",
    "available_models": "rse_transcribe.models",
    "load": "rse_transcribe.models",
    "transcribe": "rse_transcribe.recordings",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    import importlib

    if name == "__version__":
        from importlib.metadata import version

        value: object = version("rse-transcribe")
    elif name in _HOMES:
        try:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        except ImportError as error:
            _explain(error)
            raise
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _explain(error: ImportError) -> None:
    """A user's own ``model.py`` or ``service/`` comes first on the path: raises what to do."""
    import sys

    package = (error.name or "").partition(".")[0]
    if package in ("model", "service"):
        hiding = getattr(sys.modules.get(package), "__file__", None) or "something on sys.path"
        raise ImportError(
            f"{hiding} hides the package {package!r} of rse-transcribe: rename it, "
            "or start Python in another folder",
            name=package,
        ) from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
