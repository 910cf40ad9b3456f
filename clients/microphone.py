"""Transcribe what an input device hears, live: ``python -m clients.microphone``.

Notes in the terminal, and on a MIDI port with ``--midi-port``; Ctrl-C ends.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clients.client import TranscriptionClient
from clients.connection.websocket import KEY_HELP
from clients.errors import TranscriptionError
from clients.midi.port import VIRTUAL, MidiOut, MidiPortError, MpeOut, open_port
from service.protocol.client_messages import Start, protocol_error
from service.protocol.command_line import add_result_options, refuse_existing, write_whole
from service.protocol.options import Mode
from service.protocol.server_messages import NoteOn, Pedal

try:
    import soundfile
    from rich.console import Console

    from clients.live.capture import (
        ENCODING,
        DeviceError,
        Microphone,
        input_devices,
        load_sounddevice,
    )
    from clients.live.terminal import TOO_LATE_S, Terminal
    from service.score.analysis import add_beat_options, analyse, wishes_of
    from service.score.beats import Wishes
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_LOOKAHEAD_MS = 100.0
ANYTIME_LOOKAHEAD_MS = 200.0
# With the 2 s of audio that may be under way unanswered, a line that stalls is noticed within 5 s.
STALL_TIMEOUT_S = 1.5
CHECK_S = 0.25


class Recorder:
    """Passes audio to the client, and to a sound file if there is one.

    Attributes:
        failure: why the rest of the audio is not in the file, if so.
    """

    def __init__(self, client: TranscriptionClient, file: soundfile.SoundFile | None) -> None:
        self._client = client
        self._file = file
        self.failure: Exception | None = None

    def put(self, pcm: bytes) -> None:
        self._client.put(pcm)
        if self._file is None or self.failure is not None:
            return
        try:
            self._file.buffer_write(pcm, dtype="int16")
        except (soundfile.LibsndfileError, AssertionError) as error:  # such as a full disk
            self.failure = error


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=(__doc__ or "").partition("\n\n")[2].replace("``", "") + KEY_HELP,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=27),
    )
    add = parser.add_argument
    add("--list-devices", action="store_true", help="list the input devices and exit")
    add("--device", help="number or part of the name (default: the system's)")
    channel_help = "the one input to hear (default: the first two)"
    add("--channel", type=int, metavar="N", help=channel_help)
    add("--url", default=DEFAULT_URL, help="the service (default: %(default)s)")
    lookahead_help = (
        f"audio used after each frame (default: {DEFAULT_LOOKAHEAD_MS:g}; "
        f"anytime: {ANYTIME_LOOKAHEAD_MS:g})"
    )
    add("--lookahead-ms", type=float, metavar="MS", help=lookahead_help)
    add("--block-frames", type=int, metavar="N", help="frames emitted together")
    mode_help = "block, or anytime (default for a MIDI port)"
    add("--mode", choices=list(Mode), metavar="MODE", help=mode_help)
    add("--model", help="name of the weights")
    port_help = f"send notes to this MIDI port; {VIRTUAL}: a new one"
    add("--midi-port", metavar="NAME", help=port_help)
    add("--save", type=Path, metavar="TAKE.wav", help="write the audio")
    add("--midi", type=Path, metavar="TAKE.mid", help="write the notes")
    add_result_options(parser)
    add_beat_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = "python -m clients.microphone") -> int:
    """Run the command line; returns the exit status."""
    parser = _parser(prog)
    args = parser.parse_args(arguments)
    if args.midi is None and wishes_of(args) != Wishes():
        parser.error("--bpm and what else says where the beat is need --midi")
    if args.midi is not None and (args.midi.is_dir() or not args.midi.parent.is_dir()):
        parser.error(f"--midi {args.midi}: not a file in a folder that exists")
    takes = [path for path in (args.midi, args.save) if path is not None]
    try:
        refuse_existing(takes, args.force)
    except FileExistsError as error:
        parser.error(str(error))
    try:
        sounddevice = load_sounddevice()
        if args.list_devices:
            devices = input_devices(sounddevice)
            print("\n".join(devices) if devices else "no input devices")
            return 0
        return asyncio.run(_listen(args, sounddevice))
    except ValidationError as error:
        print(protocol_error(error, starting=True).message, file=sys.stderr)
        return 1
    except (TranscriptionError, DeviceError, MidiPortError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


async def _listen(args: argparse.Namespace, sounddevice: Any) -> int:
    device = int(args.device) if args.device and args.device.isdigit() else args.device
    microphone = Microphone(sounddevice, device, args.channel)
    mode: Any = args.mode or ("anytime" if args.midi_port is not None else None)
    default_ms = ANYTIME_LOOKAHEAD_MS if mode == "anytime" else DEFAULT_LOOKAHEAD_MS
    options = Start(
        encoding=ENCODING,
        sample_rate=microphone.sample_rate,
        channels=microphone.channels,
        mode=mode,
        lookahead_ms=default_ms if args.lookahead_ms is None else args.lookahead_ms,
        block_frames=args.block_frames,
        model=args.model,
        instruments=args.instruments,
        tuning_hz=args.tuning_hz,
        bends=args.bends,
        updates=True,
    )
    client = TranscriptionClient(args.url, options, give_up_s=None, stall_timeout_s=STALL_TIMEOUT_S)
    terminal = Terminal(
        Console(),
        microphone.name,
        microphone.sample_rate,
        lambda: microphone.level_db,
        lambda: client.behind_s,
    )
    with ExitStack() as stack:
        # Closed in reverse order: the device first, then the port with all its notes.
        if args.midi is not None:
            stack.callback(_save_midi, client, args.midi, wishes_of(args))
        midi_out = None
        if args.midi_port is not None:
            midi_out = (MpeOut if args.bends else MidiOut)(open_port(args.midi_port))
            stack.callback(midi_out.close)
        recorder = Recorder(client, _sound_file(args.save, microphone, stack))
        stack.enter_context(terminal)
        stack.callback(microphone.close)
        microphone.open(recorder.put, client.finish)

        async def follow() -> None:
            async for event in client:
                sent_s = client.sent_samples / microphone.sample_rate
                match event:
                    case NoteOn() | Pedal(down=True):
                        late = sent_s - event.time_s > TOO_LATE_S
                    case _:
                        late = False
                if midi_out is not None and not late:  # before the picture
                    midi_out.event(event)
                terminal.event(event)

        async def watch() -> None:
            while True:
                await asyncio.sleep(CHECK_S)
                if midi_out is not None and client.behind_s > TOO_LATE_S:
                    midi_out.silence()

        task = asyncio.current_task()
        assert task is not None
        _end_on_signals(task)
        client.start()
        watching = asyncio.create_task(watch())
        stack.callback(watching.cancel)
        try:
            try:
                await follow()
            except asyncio.CancelledError:  # Ctrl-C: the last notes still come, until a second one
                microphone.close()
                await asyncio.sleep(0)  # for the blocks that the device has handed over
                client.finish()
                await follow()
        finally:
            await client.close()
    print(f"{terminal.notes} notes in {client.sent_samples / microphone.sample_rate:.1f} s")
    if client.lost_samples or microphone.overflows:
        print(
            f"audio was lost: {client.lost_samples / microphone.sample_rate:.1f} s without "
            f"connection, {microphone.overflows} overflows of the device",
            file=sys.stderr,
        )
    if microphone.stopped:
        print(f"{microphone.name} stopped: unplugged, or in use elsewhere", file=sys.stderr)
    if recorder.failure is not None:
        print(f"{args.save} is incomplete: {recorder.failure}", file=sys.stderr)
    return 1 if microphone.stopped or recorder.failure is not None else 0


def _end_on_signals(task: asyncio.Task[Any]) -> None:
    """SIGTERM ends the take as Ctrl-C does, and so does a terminal that is closed."""
    loop = asyncio.get_running_loop()
    written = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def hang_up() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in written:  # writing to it would fail, and the files are still to be written
            os.dup2(nowhere, stream.fileno())
        task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(signal.SIGHUP, hang_up)


def _sound_file(
    path: Path | None, microphone: Microphone, stack: ExitStack
) -> soundfile.SoundFile | None:
    if path is None:
        return None
    try:
        return stack.enter_context(
            soundfile.SoundFile(
                path, "w", microphone.sample_rate, microphone.channels, subtype="PCM_16"
            )
        )
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise OSError(f"{path} cannot be written: {error}") from None


def _save_midi(client: TranscriptionClient, path: Path, wishes: Wishes) -> None:
    if not client.sessions:
        return  # a take that did not begin replaces none
    notes = client.notes
    write_whole(path, notes.midi(analyse(notes.notes, wishes).tempo))
    print(f"{path}: {len(notes.notes)} notes")


if __name__ == "__main__":
    sys.exit(main())
