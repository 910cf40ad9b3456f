"""The microphone client with a real sound system: what is played in a room plays a synthesiser."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests import fakes
from tests.clients.fakes.audio_server import ROOM, AudioServerError, jack, play, pulseaudio
from tests.conftest import require_system
from tests.paths import REPOSITORY
from tests.service.servers import TONES, server_starter

RATE = 44_100
MELODY = [(69, 0.5, 0.9), (81, 1.2, 1.5), (57, 1.9, 2.4), (93, 2.8, 3.1), (69, 3.5, 3.9)]
"""Pitch, onset and end in seconds: tones that the fake model hears."""
PATIENCE_S = 5.0  # of a machine that does much else


@pytest.fixture
def room(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of programs that hear a room of PulseAudio's."""
    for program in ("pulseaudio", "pactl", "paplay", "libportaudio"):
        require_system(program)
    yield from started(pulseaudio(tmp_path))


def started(server: AbstractContextManager[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Skips, with the server's own words, where it is installed but does not start."""
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(server)
        except AudioServerError as error:
            pytest.skip(f"the sound server does not start here: {error}")
        yield environment


# A musician in the room: hears what is played there, a sample after the other, and what comes in at
# the MIDI port, each message with the number of samples heard by then. Ends with its input.
MUSICIAN = """
import json, subprocess, sys, threading, time
import mido
from clients.midi.port import VIRTUAL_NAME

room, path = sys.argv[1:]
heard = open(path, "wb")
format = ["--raw", "--format=s16le", "--rate=44100", "--channels=1", "--latency-msec=10"]
recorder = subprocess.Popen(["parec", f"--device={room}.monitor", *format], stdout=subprocess.PIPE)
counted, told = 0, []

def listen():
    global counted
    while block := recorder.stdout.read(2 * 220):
        heard.write(block)
        counted += len(block) // 2

def take(message):
    if message.type in ("note_on", "note_off"):
        told.append((message.type, message.note, counted))

backend = mido.Backend("mido.backends.rtmidi/UNIX_JACK", load=True)
names, deadline = [], time.monotonic() + 90
while not names and time.monotonic() < deadline:
    names = [name for name in backend.get_input_names() if VIRTUAL_NAME in name]
    time.sleep(0.1)
port = backend.open_input(names[0], callback=take)
listener = threading.Thread(target=listen)
listener.start()
while not counted:
    time.sleep(0.05)
print("listening", flush=True)
sys.stdin.read()
port.close()
recorder.terminate()
listener.join()
heard.close()
print(json.dumps(told), flush=True)
"""


async def test_tones_in_a_room_play_a_synthesiser(room: dict[str, str], tmp_path: Path) -> None:
    """Sound to MIDI, as the default of ``--midi-port`` plays along; both ends by the clock of the
    room's samples."""
    for program in ("jackd", "jack_wait", "parec"):
        require_system(program)
    pytest.importorskip("rtmidi")
    song, heard_by = tmp_path / "song.wav", tmp_path / "heard.raw"
    soundfile.write(song, fakes.play(MELODY, 4.5, RATE), RATE, subtype="PCM_16")
    with ExitStack() as stack:
        start = stack.enter_context(server_starter(tmp_path))
        server = start(*TONES)
        patchbay = stack.enter_context(contextmanager(started)(jack(tmp_path, period=256)))
        environment = room | {k: v for k, v in patchbay.items() if k.startswith("JACK_")}

        def run(*command: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        where = ("--device", ROOM, "--url", server.url)
        client = run("-m", "clients.microphone", *where, "--midi-port", "virtual")
        musician = run("-c", MUSICIAN, ROOM, str(heard_by))
        assert musician.stdout is not None
        assert await asyncio.to_thread(musician.stdout.readline) == "listening\n"
        async with asyncio.timeout(90):
            while not server.sessions():
                assert client.poll() is None, client.communicate()[0]
                await asyncio.sleep(0.1)
        await asyncio.to_thread(play, song, environment)
        await asyncio.sleep(2.0)
        client.send_signal(signal.SIGINT)
        output, _ = await asyncio.to_thread(client.communicate, timeout=60)
        assert client.returncode == 0, output
        last, _ = await asyncio.to_thread(musician.communicate, timeout=60)
    # In a cycle for which the sender was late JACK delivers again what it delivered in the last.
    begun: list[tuple[int, int]] = []
    for kind, pitch, at in json.loads(last.splitlines()[-1]):
        if kind == "note_on" and (not begun or begun[-1][0] != pitch):
            begun.append((pitch, at))
    assert [pitch for pitch, _ in begun] == [pitch for pitch, *_ in MELODY]
    samples = np.fromfile(heard_by, "<i2") / 32_768
    first = int(np.argmax(np.abs(samples) > 0.01)) / RATE
    assert np.abs(samples).max() > 0.1
    onsets = [first + onset_s - MELODY[0][1] for _, onset_s, _ in MELODY]
    delays_s = [at / RATE - onset_s for (_, at), onset_s in zip(begun, onsets, strict=True)]
    # The musician's own recorder may hear late, so that it is no lower bound to a millisecond.
    assert all(-0.2 < delay_s < PATIENCE_S for delay_s in delays_s), delays_s
