"""Sound servers of one test: PulseAudio with a room to play and record in, JACK for MIDI."""

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
STOP_S = 30.0
ROOM = "hall"


class AudioServerError(Exception):
    """It did not start; the text is the server's own."""


@contextmanager
def pulseaudio(folder: Path) -> Iterator[dict[str, str]]:
    """Runs a server that no other program knows of; yields the environment of those who may.

    PortAudio has an input device ``hall`` there, which hears what is played to the sink ``hall``.

    Raises:
        AudioServerError: it is there, but does not start on this machine.
    """
    address = f"unix:{folder / 'socket'}"
    (folder / "room.pa").write_text(
        f"load-module module-native-protocol-unix socket={folder / 'socket'} auth-anonymous=1\n"
        f"load-module module-null-sink sink_name={ROOM} rate=44100 channels=2\n"
    )
    (folder / "asoundrc").write_text(
        "</usr/share/alsa/alsa.conf>\n"
        f'pcm.{ROOM} {{ type pulse server "{address}" device "{ROOM}.monitor" }}\n'
    )
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "PULSE_RUNTIME_PATH": str(folder),
        "PULSE_SERVER": address,
        "ALSA_CONFIG_PATH": str(folder / "asoundrc"),
    }
    # No memory is shared, so that nothing of it is left in /dev/shm.
    options = ["--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--disable-shm=yes"]
    command = ["pulseaudio", "-n", "-F", str(folder / "room.pa"), *options, "--log-target=stderr"]
    own = {name: value for name, value in environment.items() if name != "PULSE_SERVER"}
    listing = ["pactl", "list", "short", "sinks"]
    with _running(command, own, folder, lambda: ROOM in _output(listing, environment)):
        yield environment


@contextmanager
def jack(folder: Path, period: int = 4096) -> Iterator[dict[str, str]]:
    """Runs a JACK server without a sound card; yields the environment of its clients.

    Args:
        period: of a cycle, in samples; messages are handed over between cycles.

    Raises:
        AudioServerError: it is there, but does not start on this machine.
    """
    name = f"rse-{uuid.uuid4().hex[:12]}"
    environment = {
        **os.environ,
        "JACK_DEFAULT_SERVER": name,
        "JACK_NO_START_SERVER": "1",
        "JACK_NO_AUDIO_RESERVATION": "1",
    }
    command = ["jackd", "-n", name, "-r", "-d", "dummy", "-r", "44100", "-p", str(period)]
    check = ["jack_wait", "-s", name, "-c"]
    try:
        # Asked to end it gives its name back; killed it would keep one of the machine's eight.
        with _running(
            command, environment, folder, lambda: "running" in _output(check, environment)
        ):
            yield environment
    finally:
        for left in Path("/dev/shm").glob(f"jack*{name}*"):
            left.unlink(missing_ok=True)


def play(path: Path, environment: dict[str, str]) -> None:
    """Plays a sound file into the room, to its end."""
    subprocess.run(["paplay", f"--device={ROOM}", str(path)], env=environment, check=True)


@contextmanager
def _running(
    command: list[str], environment: dict[str, str], folder: Path, answers: Callable[[], bool]
) -> Iterator[None]:
    """A server, from when it answers; at the end it is asked to end, and made to if need be."""
    log = folder / f"{command[0]}.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_S
        while not answers():
            if server.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace").strip().splitlines()[-3:]
                raise AudioServerError(" / ".join(words) or "it said nothing")
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout
