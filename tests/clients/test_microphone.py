"""Tests of the microphone client's command, with a fake device and a fake MIDI port."""

import asyncio
import importlib
import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import mido
import numpy as np
import pytest
import soundfile

from clients import client, microphone
from clients.capture import DeviceError, load_sounddevice
from clients.microphone import main
from tests.clients.fake_devices import RATE, FakePort, FakeSounddevice
from tests.clients.fake_service import Behaviour, FakeService
from tests.commands import Outcome, run
from tests.conftest import require_system
from tests.paths import REPOSITORY


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeSounddevice:
    fake = FakeSounddevice(seconds=3.0)
    monkeypatch.setattr(microphone, "load_sounddevice", lambda: fake)
    monkeypatch.setattr(client, "FIRST_DELAY_S", 0.001)
    return fake


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> FakePort:
    fake = FakePort()
    monkeypatch.setattr(microphone, "open_port", lambda name: fake)
    return fake


async def record(service: FakeService, *arguments: object) -> Outcome:
    """Run the command with the address of a service."""
    return await asyncio.to_thread(run, main, *arguments, "--url", service.url)


@pytest.mark.parametrize("channel", [None, 1, 2])
async def test_audio_is_sent_played_and_saved(
    device: FakeSounddevice, port: FakePort, tmp_path: Path, channel: int | None
) -> None:
    """Without ``--channel``, both channels are sent and saved."""
    wav, midi = tmp_path / "take.wav", tmp_path / "take.mid"
    options = () if channel is None else ("--channel", channel)
    device.overflows = channel == 2
    device.seconds = 1.9  # All audio arrives at once, and later notes would be too late to play.
    async with FakeService().running() as service:
        files = "--save", wav, "--midi", midi
        outcome = await record(service, *options, "--midi-port", "synth", *files)
        (session,) = service.sessions
    assert outcome.status == 1  # because the device stopped
    assert session.stopped
    assert session.start["sample_rate"] == RATE
    assert device.streams[0].options["channels"] == 2
    ramp = np.arange(round(1.9 * RATE)).astype("<i2")
    both = np.column_stack([-ramp, ramp])
    expected = both if channel is None else both[:, channel - 1]
    assert session.start.get("channels", 1) == expected.ndim
    assert bytes(session.audio) == expected.tobytes()
    np.testing.assert_array_equal(soundfile.read(wav, dtype="int16")[0], expected)
    assert soundfile.info(wav).samplerate == RATE
    played = [message.note for message in port.messages if message.type == "note_on"]
    assert played == [60, 61]
    assert port.sounding == set()
    assert port.closed
    assert [m.note for m in mido.MidiFile(midi) if m.type == "note_on" and m.velocity] == played
    assert "2 notes in 1.9 s" in outcome.output
    lost = "lost audio: 0.0 s not transcribed, 190 device overflows\n" * device.overflows
    assert outcome.error == f"{lost}Piano Mic stopped: unplugged, or used by another program\n"


async def test_late_notes_are_shown_but_not_played(
    device: FakeSounddevice, port: FakePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microphone, "TOO_LATE_S", -1.0)  # every note is late
    device.pause_s = 0.01
    device.seconds = 1.0
    async with FakeService(Behaviour(pedal=True)).running() as service:
        outcome = await record(service, "--midi-port", "synth")
    assert outcome.status == 1
    assert {message.type for message in port.messages} <= {"control_change"}
    assert all(message.value == 0 for message in port.messages)
    assert "1 note in 1.0 s" in outcome.output


async def test_the_pedal_is_restored_after_all_notes_off(
    device: FakeSounddevice, port: FakePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pedal_values() -> list[int]:
        return [message.value for message in port.messages if message.is_cc(64)]

    def behind_s(_: client.TranscriptionClient) -> float:
        if pedal_values() == [127, 0, 127]:
            device.seconds = 0.0  # The device stops.
        return 60.0 if pedal_values() == [127] else 0.0

    monkeypatch.setattr(client.TranscriptionClient, "behind_s", property(behind_s))
    monkeypatch.setattr(microphone, "CHECK_S", 0.001)
    device.pause_s = 0.01
    device.seconds = 60.0
    async with FakeService(Behaviour(pedal=True)).running() as service:
        assert (await record(service, "--midi-port", "synth", "--bends")).status == 1
    assert pedal_values() == [127, 0, 127, 0]


@pytest.mark.usefixtures("device")
async def test_a_rejected_session_preserves_the_existing_file(tmp_path: Path) -> None:
    take = tmp_path / "take.mid"
    take.write_bytes(b"earlier")
    async with FakeService(Behaviour(reject_start=True)).running() as service:
        outcome = await record(service, "--midi", take, "--force")
    assert outcome.status == 1
    assert take.read_bytes() == b"earlier"
    assert "cannot start so" in outcome.error


async def test_a_server_error_ends_all_notes(device: FakeSounddevice, port: FakePort) -> None:
    async with FakeService(Behaviour(fail_at_samples=round(1.4 * RATE))).running() as service:
        outcome = await record(service, "--midi-port", "synth")
    assert outcome.status == 1
    assert any(message.type == "note_on" for message in port.messages)
    assert port.sounding == set()
    assert port.closed
    assert device.streams[0].closed.is_set()
    assert "NaN in audio" in outcome.error


async def test_an_unplugged_midi_port_ends_the_session(
    device: FakeSounddevice, port: FakePort
) -> None:
    def fail(message: mido.Message) -> None:
        raise OSError("the synth was unplugged")

    device.seconds = None
    port.send = fail  # type: ignore[method-assign]
    async with FakeService().running() as service:
        outcome = await record(service, "--midi-port", "synth")
    assert outcome.status == 1
    assert port.closed
    assert device.streams[0].closed.is_set()
    assert "the synth was unplugged" in outcome.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--lookahead-ms -5", "lookahead_ms must be greater than 0"),
        ("--instruments kazoo", "not kazoo"),
        ("--device harp", "harp"),
        ("--channel 3", "2 input channels"),
        ("--save none/take.wav", "cannot write none/take.wav"),
        ("--bpm 90", "require --midi"),
        ("--midi none/take.mid", "expected a file in an existing folder"),
        ("--midi .", "expected a file in an existing folder"),
        (f"--midi {'a' * 300}.mid", "File name too long"),
        ("--mode fast", "'block', 'anytime'"),
        ("--midi take.wav", "must end in .mid or .midi"),
        ("--midi take.mid --save ./take.mid", "--save and --midi both name take.mid"),
    ],
)
@pytest.mark.usefixtures("device")
def test_invalid_options_are_rejected_before_recording(arguments: str, message: str) -> None:
    status, _, error = run(main, *arguments.split())
    assert message in error
    assert status == (2 if error.startswith("usage:") else 1)
    assert error.count("\n") == status


@pytest.mark.parametrize("option", ["--save", "--midi"])
def test_existing_files_are_preserved(device: FakeSounddevice, tmp_path: Path, option: str) -> None:
    """Without ``--force`` the command fails. With it, it replaces files only once it records."""
    take = tmp_path / {"--save": "take.wav", "--midi": "take.mid"}[option]
    take.write_bytes(b"earlier")
    status, _, error = run(main, option, take)
    assert status == 2
    assert f"{take.name} exists; use --force to replace it" in error
    status, _, error = run(main, option, take, "--force", "--midi-port", "no such port")
    assert status == 1
    assert "no such port" in error
    assert take.read_bytes() == b"earlier"


async def test_an_unavailable_device_keeps_the_existing_file(
    device: FakeSounddevice, tmp_path: Path
) -> None:
    earlier, new = tmp_path / "earlier.wav", tmp_path / "new.wav"
    earlier.write_bytes(b"earlier")
    device.opens = False
    async with FakeService().running() as service:
        for take in (earlier, new):
            outcome = await record(service, "--save", take, "--force")
            assert outcome.status == 1
            assert "Device unavailable" in outcome.error
    assert earlier.read_bytes() == b"earlier"
    assert not new.exists()


@pytest.mark.parametrize(
    ("error", "advice"), [(ImportError(), "pip install"), (OSError(), "apt-get install")]
)
def test_errors_state_how_to_install_missing_libraries(
    error: Exception, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(DeviceError, match=advice):
        load_sounddevice()


def test_portaudio_lists_devices() -> None:
    require_system("libportaudio")
    status, output, _ = run(main, "--list-devices")
    assert status == 0
    assert "Error" not in output


@pytest.mark.usefixtures("device")
async def test_a_full_disk_loses_no_notes(tmp_path: Path) -> None:
    wav, bytes_per_second = tmp_path / "take.wav", 2 * RATE
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        async with FakeService().running() as service:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_per_second, limits[1]))
            outcome = await record(service, "--save", wav)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert outcome.status == 1
    assert "3 notes in 3.0 s" in outcome.output
    assert f"{wav} is incomplete" in outcome.error
    assert outcome.error.count("\n") == 2  # The second line reports that the device stopped.


CLIENT_PROGRAM = """
import os, signal, sys, traceback
from clients import microphone, session
from tests.clients.fake_devices import FakePort, FakeSounddevice

session.OPEN_TIMEOUT_S = microphone.STALL_TIMEOUT_S = microphone.TOO_LATE_S = 60.0
url, midi, error_path = sys.argv[1:]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest's process may ignore it
os.open(os.ttyname(0), os.O_RDWR)  # makes this the controlling terminal of the session
port = FakePort()
microphone.load_sounddevice = lambda: FakeSounddevice(seconds=None)
microphone.open_port = lambda name: port
try:
    status = microphone.main(["--url", url, "--midi-port", "synth", "--midi", midi])
    assert port.closed and not port.sounding, port.messages
    assert any(message.type == "note_on" for message in port.messages)
except BaseException:
    with open(error_path, "w") as file:  # the terminal may be closed
        traceback.print_exc(file=file)
    raise
sys.exit(status)
"""


@pytest.mark.parametrize("hangs_up", [False, True], ids=["ctrl-c", "closed terminal"])
async def test_interruption_saves_the_last_notes(tmp_path: Path, hangs_up: bool) -> None:
    midi, log, error_path = (tmp_path / name for name in ("take.mid", "log", "error"))
    error_path.touch()
    terminal, program_end = pty.openpty()
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, os.read, terminal, 65_536)
    async with FakeService().running() as service:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", CLIENT_PROGRAM, service.url, str(midi), str(error_path)],
                cwd=REPOSITORY,
                stdin=program_end,
                stdout=program_end if hangs_up else output,
                stderr=program_end if hangs_up else output,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(100):
                while not (service.sessions and service.sessions[0].acknowledged_samples > RATE):
                    await asyncio.sleep(0.01)
                    assert process.poll() is None, log.read_text()
            if not hangs_up:
                os.kill(process.pid, signal.SIGINT)
                await asyncio.to_thread(process.wait, timeout=100)
            loop.remove_reader(terminal)
            os.close(terminal)  # sends SIGHUP
            await asyncio.to_thread(process.wait, timeout=100)
        finally:
            process.kill()
            process.wait()
            os.close(program_end)
        assert process.returncode == 0, log.read_text() + error_path.read_text()
        assert service.sessions[0].stopped
    assert any(message.type == "note_on" for message in mido.MidiFile(midi))
    assert "Traceback" not in log.read_text()
