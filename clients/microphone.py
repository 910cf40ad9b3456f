"""Transcribe what an input device hears, live: ``python -m clients.microphone``.

Notes appear in the terminal, and on a MIDI port with ``--midi-port``. Ctrl-C ends the take.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clients.backlog import Backlog
from clients.connection import KEY_HELP
from clients.errors import TranscriptionError
from clients.live import Listener, transcribe_live
from clients.midi_port import VIRTUAL, MidiOut, MidiPortError, open_port
from clients.notes import NoteList
from clients.protocol import Event, Ready, StartOptions

try:
    import soundfile
    from rich.console import Console

    from clients.capture import (
        ENCODING,
        FRAME_BYTES,
        DeviceError,
        Microphone,
        input_devices,
        load_sounddevice,
    )
    from clients.terminal import Terminal
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_LOOKAHEAD_MS = 100.0
# Audio that is kept while there is no connection.
MAX_BACKLOG_S = 30.0


class Listeners:
    """Tells each of several listeners; what has no ``connected`` hears the events alone."""

    def __init__(self, display: Listener, *others: Any) -> None:
        self._display = display
        self._others = others

    def connected(self, ready: Ready) -> None:
        self._display.connected(ready)

    def disconnected(self, error: TranscriptionError, retry_s: float) -> None:
        self._display.disconnected(error, retry_s)

    def event(self, event: Event) -> None:
        for other in self._others:  # the MIDI port before the picture
            other.event(event)
        self._display.event(event)


class RecordingBacklog(Backlog):
    """A backlog whose audio is also written to a sound file."""

    def __init__(self, frame_bytes: int, max_samples: int, file: soundfile.SoundFile) -> None:
        super().__init__(frame_bytes, max_samples)
        self._file = file

    def put(self, pcm: bytes) -> None:
        self._file.buffer_write(pcm, dtype="int16")
        super().put(pcm)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clients.microphone", description=__doc__, epilog=KEY_HELP
    )
    parser.add_argument("--list-devices", action="store_true", help="show the input devices, end")
    parser.add_argument("--device", help="number or a part of the name (default: the system's)")
    parser.add_argument("--channel", type=int, default=1, help="input channel, 1 for the first")
    parser.add_argument("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    parser.add_argument(
        "--lookahead-ms",
        type=float,
        default=DEFAULT_LOOKAHEAD_MS,
        help="future audio a frame may wait for: later but surer (default: %(default)g)",
    )
    parser.add_argument("--block-frames", type=int, help="frames emitted together")
    parser.add_argument("--mode", choices=["block", "centre"], help="way of emitting frames")
    parser.add_argument("--model", help="name of the weights")
    parser.add_argument(
        "--midi-port", metavar="NAME", help=f"send notes to this MIDI port, or {VIRTUAL} for a new"
    )
    parser.add_argument("--save", type=Path, metavar="TAKE.wav", help="write the audio")
    parser.add_argument("--midi", type=Path, metavar="TAKE.mid", help="write the notes")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        sounddevice = load_sounddevice()
        if args.list_devices:
            devices = input_devices(sounddevice)
            print("\n".join(devices) if devices else "no input devices")
            return 0
        return asyncio.run(_listen(args, sounddevice))
    except (TranscriptionError, DeviceError, MidiPortError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


async def _listen(args: argparse.Namespace, sounddevice: Any) -> int:
    device = int(args.device) if args.device and args.device.isdigit() else args.device
    microphone = Microphone(sounddevice, device, args.channel)
    options = StartOptions(
        encoding=ENCODING,
        sample_rate=microphone.sample_rate,
        mode=args.mode,
        lookahead_ms=args.lookahead_ms,
        block_frames=args.block_frames,
        model=args.model,
    )
    notes = NoteList()
    terminal = Terminal(Console(), microphone.name)
    with ExitStack() as stack:
        # Closed in reverse order: the device first, then the port with all its notes.
        others: list[Any] = [notes]
        if args.midi is not None:
            stack.callback(_save_midi, notes, args.midi)
        backlog = _backlog(args.save, microphone.sample_rate, stack)
        if args.midi_port is not None:
            midi_out = MidiOut(open_port(args.midi_port))
            stack.callback(midi_out.close)
            others.append(midi_out)
        stack.enter_context(terminal)
        stack.enter_context(microphone)
        microphone.open(backlog)
        with _Interrupt(microphone, backlog):
            await transcribe_live(backlog, args.url, options, Listeners(terminal, *others))
    lost_s = backlog.dropped_samples / microphone.sample_rate
    print(f"{terminal.notes} notes in {backlog.end / microphone.sample_rate:.1f} s")
    if lost_s or microphone.overflows:
        print(
            f"audio was lost: {lost_s:.1f} s without connection, "
            f"{microphone.overflows} overflows of the device",
            file=sys.stderr,
        )
    return 0


def _backlog(save: Path | None, sample_rate: int, stack: ExitStack) -> Backlog:
    max_samples = round(MAX_BACKLOG_S * sample_rate)
    if save is None:
        return Backlog(FRAME_BYTES, max_samples)
    try:
        file = stack.enter_context(
            soundfile.SoundFile(save, "w", samplerate=sample_rate, channels=1, subtype="PCM_16")
        )
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise OSError(f"{save} cannot be written: {error}") from None
    return RecordingBacklog(FRAME_BYTES, max_samples, file)


def _save_midi(notes: NoteList, path: Path) -> None:
    notes.save_midi(path)
    print(f"{path}: {len(notes.notes)} notes")


class _Interrupt:
    """Ctrl-C ends the audio, so that the last notes still come; a second one ends all at once."""

    def __init__(self, microphone: Microphone, backlog: Backlog) -> None:
        self._microphone = microphone
        self._backlog = backlog
        self._task = asyncio.current_task()

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._interrupted)
            except (NotImplementedError, RuntimeError, ValueError):
                return  # Windows, or not the main thread: KeyboardInterrupt unwinds the stack

    def _interrupted(self) -> None:
        if self._backlog.ended and self._task is not None:
            self._task.cancel()
        self._microphone.close()
        self._backlog.finish()

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.remove_signal_handler(number)
            except (NotImplementedError, RuntimeError, ValueError):
                return


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
