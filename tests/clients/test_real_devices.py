"""The microphone client with a real sound system: what is played in a room plays a synthesiser."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests import fakes
from tests.conftest import require_system
from tests.paths import REPOSITORY
from tests.service.servers import RunningServer

RATE = 44_100
MELODY = [(69, 0.5, 0.9), (81, 1.2, 1.5), (57, 1.9, 2.4), (93, 2.8, 3.1), (69, 3.5, 3.9)]
"""Pitch, onset and end in seconds: tones that the fake model hears, in the left channel."""
OTHER = [(57, 0.7, 1.1), (69, 2.0, 2.6), (81, 3.2, 3.6)]  # in the right one
START_S = 60.0
ROOM = "hall"
# Says what comes in at the MIDI port of the client.
SYNTHESISER = """
import time, mido
from clients.midi.port import VIRTUAL_NAME

backend = mido.Backend("mido.backends.rtmidi/UNIX_JACK", load=True)
while not (names := [name for name in backend.get_input_names() if VIRTUAL_NAME in name]):
    time.sleep(0.1)
port = backend.open_input(names[0])
print("listening", flush=True)
for message in port:
    if message.type == "note_on":
        print(message.note, flush=True)
"""


def start(
    stack: ExitStack, command: list[str], environment: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """A program of as long as the stack; at the end it is asked to end, and made to if need be."""
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def wait_for(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.skip(f"the sound server does not start here: {log.read_text(errors='replace')}")
        time.sleep(0.1)


def output_of(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def pulseaudio(stack: ExitStack, folder: Path) -> dict[str, str]:
    """Runs a server that no other program knows of; the environment of those who may. PortAudio has
    an input device ``hall`` there, which hears what is played to the sink ``hall``."""
    address = f"unix:{folder / 'socket'}"
    (folder / "room.pa").write_text(
        f"load-module module-native-protocol-unix socket={folder / 'socket'} auth-anonymous=1\n"
        f"load-module module-null-sink sink_name={ROOM} rate={RATE} channels=2\n"
    )
    (folder / "asoundrc").write_text(
        "</usr/share/alsa/alsa.conf>\n"
        f'pcm.{ROOM} {{ type pulse server "{address}" device "{ROOM}.monitor" }}\n'
    )
    own = {
        **os.environ,
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "PULSE_RUNTIME_PATH": str(folder),
        "ALSA_CONFIG_PATH": str(folder / "asoundrc"),
    }
    environment = {**own, "PULSE_SERVER": address}
    # No memory is shared, so that nothing of it is left in /dev/shm.
    options = ["--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--disable-shm=yes"]
    command = ["pulseaudio", "-n", "-F", str(folder / "room.pa"), *options, "--log-target=stderr"]
    process = start(stack, command, own, log := folder / "pulseaudio.log")
    sinks = ["pactl", "list", "short", "sinks"]
    wait_for(process, log, lambda: ROOM in output_of(sinks, environment))
    return environment


def jack(stack: ExitStack, folder: Path, environment: dict[str, str]) -> None:
    """Runs a JACK server without a sound card, for programs of this environment."""
    name = f"rse-{uuid.uuid4().hex[:12]}"
    environment |= {
        "JACK_DEFAULT_SERVER": name,
        "JACK_NO_START_SERVER": "1",
        "JACK_NO_AUDIO_RESERVATION": "1",
    }

    def clean_up() -> None:  # of a server that had to be killed
        for left in Path("/dev/shm").glob(f"jack*{name}*"):
            left.unlink(missing_ok=True)

    stack.callback(clean_up)
    command = ["jackd", "-n", name, "-r", "-d", "dummy", "-r", str(RATE), "-p", "256"]
    process = start(stack, command, environment, log := folder / "jackd.log")
    check = ["jack_wait", "-s", name, "-c"]
    wait_for(process, log, lambda: output_of(check, environment).strip() == "running")


def test_tones_in_one_channel_of_a_room_play_a_synthesiser(
    server: RunningServer, tmp_path: Path
) -> None:
    for program in ("pulseaudio", "pactl", "paplay", "libportaudio", "jackd", "jack_wait"):
        require_system(program)
    pytest.importorskip("rtmidi")
    song, heard, reported = (tmp_path / name for name in ("song.wav", "heard.txt", "reported.txt"))
    melody, accompaniment = fakes.play(MELODY, 4.5, RATE), fakes.play(OTHER, 4.5, RATE)
    both = np.column_stack([melody, accompaniment])
    soundfile.write(song, both, RATE, subtype="PCM_16")
    with ExitStack() as stack:
        environment = pulseaudio(stack, tmp_path)
        jack(stack, tmp_path, environment)
        where = ["--device", ROOM, "--channel", "1", "--url", server.url, "--midi-port", "virtual"]
        client = start(
            stack, [sys.executable, "-m", "clients.microphone", *where], environment, reported
        )
        start(stack, [sys.executable, "-c", SYNTHESISER], environment, heard)
        deadline = time.monotonic() + START_S
        while not (server.sessions() and heard.read_text()):
            assert client.poll() is None, reported.read_text()
            assert time.monotonic() < deadline, reported.read_text()
            time.sleep(0.1)
        subprocess.run(["paplay", f"--device={ROOM}", str(song)], env=environment, check=True)
        time.sleep(2.0)
        client.send_signal(signal.SIGINT)
        assert client.wait(START_S) == 0, reported.read_text()
        time.sleep(1.0)
        pitches = [int(line) for line in heard.read_text().splitlines()[1:]]
    # In a cycle for which the sender was late JACK delivers again what it delivered in the last.
    begun = [pitch for n, pitch in enumerate(pitches) if pitches[n - 1 : n] != [pitch]]
    assert begun == [pitch for pitch, *_ in MELODY]
