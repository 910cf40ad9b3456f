"""The microphone client with a real sound system: what is played in a room is what it sends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.clients.fakes.audio_server import ROOM, AudioServerError, jack, play, pulseaudio
from tests.clients.fakes.fake_service import FakeService
from tests.conftest import REPOSITORY, require_system

RATE = 44_100
TONE_HZ = 441.0
PLAYED_S = 2.0


@pytest.fixture
def room(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of programs that hear a room of PulseAudio's."""
    for program in ("pulseaudio", "pactl", "paplay", "libportaudio"):
        require_system(program)
    yield from started(pulseaudio(tmp_path))


@pytest.fixture
def patchbay(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of programs that find each other through JACK."""
    for program in ("jackd", "jack_wait"):
        require_system(program)
    yield from started(jack(tmp_path))


def started(server: AbstractContextManager[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Skips, with the server's own words, where it is installed but does not start."""
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(server)
        except AudioServerError as error:
            pytest.skip(f"the sound server does not start here: {error}")
        yield environment


def seconds_of_tone(samples: np.ndarray, rate: int) -> float:
    """How long the tone, and little else, is heard."""
    length = rate // 10
    found = 0
    for start in range(0, len(samples) - length, length):
        spectrum = np.abs(np.fft.rfft(samples[start : start + length] * np.hanning(length)))
        loud = np.sqrt(np.mean(samples[start : start + length] ** 2)) > 0.05
        found += bool(loud and abs(np.argmax(spectrum) * rate / length - TONE_HZ) < 15)
    return found / 10


async def test_what_is_played_in_a_room_is_recorded_and_sent(
    room: dict[str, str], tmp_path: Path
) -> None:
    song, take = tmp_path / "song.wav", tmp_path / "take.wav"
    time_s = np.arange(round(PLAYED_S * RATE)) / RATE
    soundfile.write(song, 0.3 * np.sin(2 * np.pi * TONE_HZ * time_s), RATE)
    async with FakeService().running() as service:
        command = [sys.executable, "-m", "clients.microphone", "--device", ROOM]
        client = subprocess.Popen(
            [*command, "--url", service.url, "--save", str(take)],
            cwd=REPOSITORY,
            env=room,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:

            async def until(holds: Callable[[], bool]) -> None:
                async with asyncio.timeout(90):
                    while not holds():
                        assert client.poll() is None, client.communicate()[0]
                        await asyncio.sleep(0.05)

            def tone_is_over() -> bool:
                """A client that was held up hears it when it is no longer played."""
                heard = np.frombuffer(bytes(service.sessions[0].audio), "<i2") / 32_768
                rest = seconds_of_tone(heard[-RATE // 2 :], RATE)
                return rest == 0 and seconds_of_tone(heard, RATE) > PLAYED_S / 4

            await until(lambda: bool(service.sessions and service.sessions[0].audio))
            await asyncio.to_thread(play, song, room)
            await until(tone_is_over)
            client.send_signal(signal.SIGINT)
            output, _ = await asyncio.to_thread(client.communicate, timeout=60)
        finally:
            client.kill()
            client.wait()
        (heard,) = service.sessions
    assert client.returncode == 0, output
    assert heard.stopped
    assert heard.start["sample_rate"] == RATE
    saved, rate = soundfile.read(take, dtype="int16")
    assert rate == RATE
    np.testing.assert_array_equal(np.frombuffer(bytes(heard.audio), "<i2"), saved)
    # A machine that is short of time drops some of it, and no machine adds any.
    assert PLAYED_S / 4 < seconds_of_tone(saved / 32_768, rate) <= PLAYED_S + 0.2, output


# A synthesiser: prints what comes in at the port that the client opens, until all is silent.
SYNTH = """
import sys, time
import mido
from clients.midi.port import VIRTUAL, VIRTUAL_NAME, MidiOut, open_port
from service.protocol.server_messages import (NoteOff, NoteOn)

JACK = "mido.backends.rtmidi/UNIX_JACK"
port = open_port(VIRTUAL, [JACK])
out = MidiOut(port)
backend = mido.Backend(JACK, load=True)
(name,) = [name for name in backend.get_input_names() if VIRTUAL_NAME in name]
synth = backend.open_input(name)
deadline = time.monotonic() + 60
# What is sent before JACK has connected the two, between two of its cycles, comes to nobody.
while synth.poll() is None and time.monotonic() < deadline:
    port.send(mido.Message("control_change", control=1))
    time.sleep(0.05)
note = dict(velocity=80, confidence=1.0, frame=0, time_s=0.0)
out.event(NoteOn(note_id=0, pitch=60, **note))
out.event(NoteOn(note_id=1, pitch=64, **note))
out.event(NoteOff(note_id=0, pitch=60, frame=1, time_s=0.1))
# In a cycle for which the sender was late JACK delivers again what it delivered in the last.
heard = {}
while len(heard) < 3 and time.monotonic() < deadline:
    news = [(m.type, m.note) for m in synth.iter_pending() if m.type != "control_change"]
    heard |= dict.fromkeys(news)
    time.sleep(0.01)
print(list(heard))
out.close()
"""


def test_notes_reach_a_synthesiser_through_a_real_port(patchbay: dict[str, str]) -> None:
    pytest.importorskip("rtmidi")
    done = subprocess.run(
        [sys.executable, "-c", SYNTH],
        cwd=REPOSITORY,
        env=patchbay,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "[('note_on', 60), ('note_on', 64), ('note_off', 60)]" in done.stdout, done
