"""Transcribes live audio from an input device: ``python -m clients.microphone``.

Shows the notes in the terminal and, with ``--midi-port``, sends them to a MIDI port. Ctrl-C stops
the recording. If the service requires an API key, set $RSE_KEY.
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
from clients.events import TranscriptionError
from clients.midi import VIRTUAL, MidiOut, MidiPortError, MpeOut, open_port
from service.protocol.client_messages import Start, protocol_error
from service.protocol.command_line import (
    add_result_options,
    check_not_existing,
    check_writable,
    counted,
    write_atomically,
)
from service.protocol.options import Encoding, Mode, lookahead_notice
from service.protocol.server_messages import NoteOn, Pedal

try:
    import soundfile
    from rich.console import Console

    from clients.capture import DeviceError, Microphone, load_sounddevice
    from clients.terminal import TOO_LATE_S, Terminal
    from service.score.analysis import add_beat_options, analyse, beat_hints_from
    from service.score.beats import NO_BEAT_HINTS, BeatHints
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[clients]'")

LOOKAHEAD_MS = {"block": 100.0, "anytime": 200.0}
# A reply is due once 2 s of audio is in flight (``clients.session.MAX_UNACKNOWLEDGED_S``). With at
# most two of these timeouts, the client detects a stalled connection within 5 s.
STALL_TIMEOUT_S = 1.5
CHECK_S = 0.25  # interval between checks of the delay


def main(arguments: Sequence[str] | None = None, prog: str = "python -m clients.microphone") -> int:
    """Run the command line. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=(__doc__ or "").partition("\n\n")[2].replace("``", ""),
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=27),
    )
    defaults = f"(default: {LOOKAHEAD_MS['block']:g}; anytime: {LOOKAHEAD_MS['anytime']:g})"
    modes = "block, or anytime (default for a MIDI port)"
    port = f"MIDI port for the notes; {VIRTUAL}: create a port"
    add = parser.add_argument
    add("--list-devices", action="store_true", help="list the input devices and exit")
    add("--device", help="number or part of the name (default: the system's)")
    add("--channel", type=int, metavar="N", help="record one channel (default: the first two)")
    add("--url", default="http://127.0.0.1:8000", help="the service (default: %(default)s)")
    add("--lookahead-ms", type=float, metavar="MS", help=f"audio used after each frame {defaults}")
    add("--mode", choices=[mode.value for mode in Mode], metavar="MODE", help=modes)
    add("--midi-port", metavar="NAME", help=port)
    add("--save", type=Path, metavar="TAKE.wav", help="write the audio")
    add("--midi", type=Path, metavar="TAKE.mid", help="write the notes")
    add_result_options(parser)
    add_beat_options(parser)
    args = parser.parse_args(arguments)
    if args.midi is None and beat_hints_from(args) != NO_BEAT_HINTS:
        parser.error("--bpm, --beats-per-bar and other beat options require --midi")
    outputs = [path for path in (args.midi, args.save) if path is not None]
    try:
        if args.midi is not None and (args.midi.is_dir() or not args.midi.parent.is_dir()):
            parser.error(f"--midi {args.midi}: expected a file in an existing folder")
        if args.midi is not None and args.midi.suffix.lower() not in (".mid", ".midi"):
            parser.error(f"--midi {args.midi}: the name must end in .mid or .midi")
        if len(outputs) == 2 and args.midi.resolve() == args.save.resolve():
            parser.error(f"--save and --midi both name {args.midi}")
        check_not_existing(outputs, args.force)
        if args.midi is not None:  # it is written at the end, when its notes would be lost
            check_writable(args.midi)
    except OSError as error:
        parser.error(str(error))
    try:
        sounddevice = load_sounddevice()
        if args.list_devices:
            print(sounddevice.query_devices())  # > marks the default input
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
    mode: Any = args.mode or ("block" if args.midi_port is None else "anytime")
    options = Start(
        encoding=Encoding.PCM_S16LE,
        sample_rate=microphone.sample_rate,
        channels=microphone.channels,
        mode=mode,
        lookahead_ms=LOOKAHEAD_MS[mode] if args.lookahead_ms is None else args.lookahead_ms,
        instruments=args.instruments,
        tuning_hz=args.tuning_hz,
        bends=args.bends,
        updates=True,
    )
    if notice := lookahead_notice(args.lookahead_ms):
        print(notice, file=sys.stderr)
    client = TranscriptionClient(args.url, options, give_up_s=None, stall_timeout_s=STALL_TIMEOUT_S)
    terminal = Terminal(Console(), microphone, client)
    with ExitStack() as stack:
        # The stack closes in reverse order: the device before the port, which ends all notes.
        if args.midi is not None:
            stack.callback(_save_midi, client, args.midi, beat_hints_from(args))
        midi_out = None
        if args.midi_port is not None:
            midi_out = (MpeOut if args.bends else MidiOut)(open_port(args.midi_port))
            stack.callback(midi_out.close)
        file: soundfile.SoundFile | None = None
        stack.enter_context(terminal)
        stack.callback(microphone.close)
        write_error: Exception | None = None  # first error in writing the audio file

        def put(pcm: bytes) -> None:
            nonlocal write_error
            client.put(pcm)
            if file is None or write_error is not None:
                return
            try:
                file.buffer_write(pcm, dtype="int16")
            except (soundfile.SoundFileRuntimeError, AssertionError) as error:  # a full disk
                write_error = error

        microphone.open(put, client.finish)
        if args.save is not None:  # after the device has opened, to keep an existing file if not
            file = stack.enter_context(_sound_file(args.save, microphone))

        async def follow() -> None:
            async for event in client:
                late = False
                if isinstance(event, NoteOn) or (isinstance(event, Pedal) and event.down):
                    now_s = client.sent_samples / microphone.sample_rate
                    late = now_s - event.time_s > TOO_LATE_S
                if midi_out is not None and not late:
                    midi_out.handle(event)
                terminal.handle(event)

        async def watch() -> None:
            while True:
                await asyncio.sleep(CHECK_S)
                if midi_out is None:
                    continue
                if client.behind_s > TOO_LATE_S:
                    midi_out.silence()
                else:
                    midi_out.pedal(client.notes.pedal_down)  # restores the pedal after `silence`

        task = asyncio.current_task()
        assert task is not None
        _end_on_signals(task)
        client.start()
        watching = asyncio.create_task(watch())
        stack.callback(watching.cancel)
        try:
            try:
                await follow()
            except asyncio.CancelledError:  # Ctrl-C: wait for the last notes; a second one aborts
                microphone.close()
                await asyncio.sleep(0)  # lets the loop pass the device's last blocks to `put`
                client.finish()
                await follow()
        except TranscriptionError:
            if client.performance.sessions:
                print(f"the last {client.behind_s:.1f} s were not transcribed", file=sys.stderr)
            raise
        finally:
            await client.close()
    print(
        f"{counted(terminal.notes, 'note')} in {client.sent_samples / microphone.sample_rate:.1f} s"
    )
    if client.performance.lost_samples or microphone.overflows:
        lost_s = client.performance.lost_samples / microphone.sample_rate
        lost = f"{lost_s:.1f} s not transcribed, {counted(microphone.overflows, 'device overflow')}"
        print(f"lost audio: {lost}", file=sys.stderr)
    if microphone.stopped:
        print(f"{microphone.name} stopped: unplugged, or used by another program", file=sys.stderr)
    if write_error is not None:
        print(f"{args.save} is incomplete: {write_error}", file=sys.stderr)
    return 1 if microphone.stopped or write_error is not None else 0


def _end_on_signals(task: asyncio.Task[Any]) -> None:
    """Make SIGTERM and a closed terminal stop the recording, like Ctrl-C."""
    loop = asyncio.get_running_loop()
    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def hang_up() -> None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        for stream in terminals:  # output to a closed terminal would fail before files are saved
            os.dup2(devnull, stream.fileno())
        task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # unless started with nohup
            loop.add_signal_handler(signal.SIGHUP, hang_up)


def _sound_file(path: Path, microphone: Microphone) -> soundfile.SoundFile:
    rate, channels = microphone.sample_rate, microphone.channels
    try:
        return soundfile.SoundFile(path, "w", rate, channels, subtype="PCM_16")
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise OSError(f"cannot write {path}: {error}") from None


def _save_midi(client: TranscriptionClient, path: Path, hints: BeatHints) -> None:
    if not client.performance.sessions:
        return  # without a session, preserve an existing file
    notes = client.notes
    write_atomically(path, notes.midi(analyse(notes.notes, hints).tempo))
    print(f"{path}: {counted(len(notes.notes), 'note')}")


if __name__ == "__main__":
    sys.exit(main())
