"""Options that both command lines have."""

import argparse

from clients.midi.notes import NoteList
from service.protocol.midi_file import DEFAULT_BEAT, Beat
from service.protocol.options import Mode

DEFAULT_URL = "http://127.0.0.1:8000"
AUTO = "auto"
SLOWEST_BPM, FASTEST_BPM = 20.0, 400.0


def add_service_options(
    parser: argparse.ArgumentParser, lookahead_help: str, mode_help: str
) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    parser.add_argument("--lookahead-ms", type=float, metavar="MS", help=lookahead_help)
    parser.add_argument("--block-frames", type=int, metavar="N", help="frames emitted together")
    parser.add_argument("--mode", choices=list(Mode), metavar="MODE", help=mode_help)
    parser.add_argument("--model", help="name of the weights")
    parser.add_argument(
        "--instruments",
        type=_names,
        metavar="NAME,NAME",
        help="only these, such as violin,cello (default: all)",
    )


def add_tempo_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tempo",
        type=_tempo,
        default=DEFAULT_BEAT,
        metavar=f"BPM|{AUTO}",
        help=f"of the MIDI file; {AUTO} estimates it (default: 120)",
    )


def beat_of(notes: NoteList, tempo: Beat | None) -> Beat:
    """The beat for a file: the one asked for, or what the notes keep to if they do."""
    if tempo is not None:
        return tempo
    from clients.midi.tempo import estimate_beat

    return estimate_beat([note.onset_s for note in notes.notes]) or DEFAULT_BEAT


def _tempo(text: str) -> Beat | None:
    """None for ``auto``."""
    if text == AUTO:
        return None
    try:
        bpm = float(text)
    except ValueError:
        bpm = 0.0
    if not SLOWEST_BPM <= bpm <= FASTEST_BPM:
        raise argparse.ArgumentTypeError(
            f"{AUTO}, or a number from {SLOWEST_BPM:g} to {FASTEST_BPM:g}, not {text!r}"
        )
    return Beat(60 / bpm)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
