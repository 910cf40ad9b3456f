"""The microphone client as a command, with a device and a MIDI port in memory."""

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


async def run(service: FakeService, *arguments: str | Path) -> int:
    return await asyncio.to_thread(main, [*map(str, arguments), "--url", service.url])


@pytest.mark.parametrize("channel", [None, 1, 2])
async def test_a_take_is_heard_played_on_and_saved(
    device: FakeSounddevice,
    port: FakePort,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    channel: int | None,
) -> None:
    """Both channels, unless one is chosen, which is that one and no mix."""
    wav, midi = tmp_path / "take.wav", tmp_path / "take.mid"
    chosen = () if channel is None else ("--channel", str(channel))
    device.seconds = 1.9  # heard at once: later notes would be too late to be played
    async with FakeService().running() as service:
        status = await run(service, *chosen, "--midi-port", "synth", "--save", wav, "--midi", midi)
        (heard,) = service.sessions
    assert status == 1  # the device ended of itself
    assert heard.stopped
    assert heard.start["sample_rate"] == RATE
    assert device.streams[0].options["channels"] == 2
    ramp = np.arange(round(1.9 * RATE)).astype("<i2")
    both = np.column_stack([-ramp, ramp])
    sound = both if channel is None else both[:, channel - 1]
    assert heard.start.get("channels", 1) == sound.ndim
    assert bytes(heard.audio) == sound.tobytes()
    np.testing.assert_array_equal(soundfile.read(wav, dtype="int16")[0], sound)
    assert soundfile.info(wav).samplerate == RATE
    begun = [message.note for message in port.messages if message.type == "note_on"]
    assert begun == [60, 61]
    assert port.sounding == set()
    assert port.closed
    assert [m.note for m in mido.MidiFile(midi) if m.type == "note_on" and m.velocity] == begun
    said = capsys.readouterr()
    assert "2 notes in 1.9 s" in said.out
    assert said.err == "Piano Mic stopped: unplugged, or used by another program\n"


async def test_notes_that_come_too_late_are_shown_but_not_played(
    device: FakeSounddevice,
    port: FakePort,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(microphone, "TOO_LATE_S", -1.0)  # every note is late
    device.pause_s = 0.01
    device.seconds = 1.0
    async with FakeService(Behaviour(pedal=True)).running() as service:
        assert await run(service, "--midi-port", "synth") == 1
    assert {message.type for message in port.messages} <= {"control_change"}
    assert all(message.value == 0 for message in port.messages)
    assert "1 notes in 1.0 s" in capsys.readouterr().out


async def test_a_pedal_that_is_still_down_after_a_silence_is_pressed_again(
    device: FakeSounddevice, port: FakePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pedal() -> list[int]:
        return [message.value for message in port.messages if message.is_cc(64)]

    def behind_s(_: client.TranscriptionClient) -> float:
        return 60.0 if pedal() == [127] else 0.0

    monkeypatch.setattr(client.TranscriptionClient, "behind_s", property(behind_s))
    monkeypatch.setattr(microphone, "CHECK_S", 0.001)
    device.pause_s = 0.01
    device.seconds = 1.0
    async with FakeService(Behaviour(pedal=True)).running() as service:
        assert await run(service, "--midi-port", "synth", "--bends") == 1
    assert pedal() == [127, 0, 127, 0]


@pytest.mark.usefixtures("device")
async def test_a_take_that_the_service_refuses_replaces_no_notes(tmp_path: Path) -> None:
    take = tmp_path / "take.mid"
    take.write_bytes(b"earlier")
    async with FakeService(Behaviour(reject_start=True)).running() as service:
        assert await run(service, "--midi", take, "--force") == 1
    assert take.read_bytes() == b"earlier"


async def test_an_error_of_the_service_ends_all_notes(
    device: FakeSounddevice, port: FakePort, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeService(Behaviour(fail_at_samples=round(1.4 * RATE))).running() as service:
        assert await run(service, "--midi-port", "synth") == 1
    assert any(message.type == "note_on" for message in port.messages)
    assert port.sounding == set()
    assert port.closed
    assert device.streams[0].closed.is_set()
    assert "NaN in audio" in capsys.readouterr().err


async def test_a_midi_port_that_goes_away_ends_the_take(
    device: FakeSounddevice, port: FakePort, capsys: pytest.CaptureFixture[str]
) -> None:
    def unplugged(message: mido.Message) -> None:
        raise OSError("the synth was unplugged")

    device.seconds = None
    port.send = unplugged  # type: ignore[method-assign]
    async with FakeService().running() as service:
        assert await run(service, "--midi-port", "synth") == 1
    assert port.closed
    assert device.streams[0].closed.is_set()
    assert "the synth was unplugged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--lookahead-ms -5", "lookahead_ms must be greater than 0"),
        ("--instruments kazoo", "not kazoo"),
        ("--device harp", "harp"),
        ("--channel 3", "2 input channels"),
        ("--save none/take.wav", "cannot write none/take.wav"),
        ("--bpm 90", "require --midi"),
        ("--midi none/take.mid", "expected a file in an existing folder"),
        ("--midi .", "expected a file in an existing folder"),
    ],
)
@pytest.mark.usefixtures("device")
def test_what_cannot_be_is_explained_before_the_take(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(arguments.split())
    except SystemExit as usage:
        status = usage.code
    said = capsys.readouterr().err
    assert sentence in said
    assert status == (2 if said.startswith("usage:") else 1)
    assert said.count("\n") == status


@pytest.mark.parametrize("option", ["--save", "--midi"])
def test_an_earlier_take_is_kept(
    device: FakeSounddevice, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --force, and with it where none begins: there is no such port."""
    take = tmp_path / "take"
    take.write_bytes(b"earlier")
    with pytest.raises(SystemExit):
        main([option, str(take)])
    assert "take exists; use --force to replace it" in capsys.readouterr().err
    assert main([option, str(take), "--force", "--midi-port", "no such port"]) == 1
    assert "no such port" in capsys.readouterr().err
    assert take.read_bytes() == b"earlier"


async def test_a_device_in_use_is_reported(
    device: FakeSounddevice, capsys: pytest.CaptureFixture[str]
) -> None:
    device.opens = False
    async with FakeService().running() as service:
        assert await run(service) == 1
    assert "Device unavailable" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "advice"), [(ImportError(), "pip install"), (OSError(), "apt-get install")]
)
def test_missing_libraries_say_what_to_install(
    error: Exception, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(DeviceError, match=advice):
        load_sounddevice()


def test_the_real_library_lists_devices(capsys: pytest.CaptureFixture[str]) -> None:
    require_system("libportaudio")
    assert main(["--list-devices"]) == 0
    assert "Error" not in capsys.readouterr().out


async def test_a_full_disk_costs_the_audio_but_no_notes(
    device: FakeSounddevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wav, bytes_of_a_second = tmp_path / "take.wav", 2 * RATE
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        async with FakeService().running() as service:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_a_second, usual[1]))
            status = await run(service, "--save", wav)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, handler)
    assert status == 1
    output = capsys.readouterr()
    assert "3 notes in 3.0 s" in output.out
    assert f"{wav} is incomplete" in output.err
    assert output.err.count("\n") == 2  # and that the device ended


INTERRUPTED = """
import os, signal, sys, traceback
from clients import microphone
from tests.clients.fake_devices import FakePort, FakeSounddevice

url, midi, words = sys.argv[1:]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as from a shell, though these tests ignore it
os.open(os.ttyname(0), os.O_RDWR)  # the first of a session's leader is its own
port = FakePort()
microphone.load_sounddevice = lambda: FakeSounddevice(seconds=None)
microphone.open_port = lambda name: port
try:
    status = microphone.main(["--url", url, "--midi-port", "synth", "--midi", midi])
    assert port.closed and not port.sounding, port.messages
    assert any(message.type == "note_on" for message in port.messages)
except BaseException:
    with open(words, "w") as file:  # there may be no terminal any more
        traceback.print_exc(file=file)
    raise
sys.exit(status)
"""


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_ctrl_c_and_a_closed_terminal_end_the_take_with_its_last_notes_and_files(
    tmp_path: Path, hangs_up: bool
) -> None:
    midi, log, words = (tmp_path / name for name in ("take.mid", "log", "words"))
    words.touch()
    terminal, end = pty.openpty()
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, os.read, terminal, 65_536)
    async with FakeService().running() as service:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", INTERRUPTED, service.url, str(midi), str(words)],
                cwd=REPOSITORY,
                stdin=end,
                stdout=end if hangs_up else output,
                stderr=end if hangs_up else output,
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
            os.close(end)
        assert process.returncode == 0, log.read_text() + words.read_text()
        assert service.sessions[0].stopped
    assert any(message.type == "note_on" for message in mido.MidiFile(midi))
    assert "Traceback" not in log.read_text()
