"""What the READMEs and the library's users do, with an installed wheel and nothing else of ours."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import httpx
import pytest
import soundfile

from tests.fakes import play
from tests.packaging.conftest import run
from tests.paths import REPOSITORY
from tests.service.servers import answers, reserved_port

# Of a machine that does much else, while it installs torch.
pytestmark = pytest.mark.timeout(1200)


def shown(kind: str) -> str:
    """Blocks of code of this kind in the READMEs."""
    texts = [
        (REPOSITORY / name).read_text() for name in ("README.md", "clients/examples/README.md")
    ]
    return "".join(re.findall(rf"^```{kind}\n(.*?)^```$", "".join(texts), re.M | re.S))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of the names that the READMEs use."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "album").mkdir()
    for name in ("song.wav", "song.m4a", "song.flac", "album/first.wav", "take-1.wav"):
        kind = "FLAC" if name.endswith(".flac") else "WAV"  # whatever the name says
        soundfile.write(folder / name, play([(69, 0.2, 0.8)], 1.0, 22_050), 22_050, format=kind)
    return folder


def test_what_the_readmes_show_runs(extended: Path, bare: Path, home: Path, tmp_path: Path) -> None:
    """All at the same time, each in a folder of its own; tests/model/test_export_onnx.py has the
    export, which takes some twenty seconds."""
    shell = {"PATH": f"{extended}:{bare}:{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    assert "rse_transcribe" in shown("python")
    lines = {line.partition("  #")[0].rstrip() for line in shown("console").splitlines()}
    assert {line.split()[0] for line in lines} == {"rse-transcribe", "python"}
    commands = [["python", "-W", "error", "-c", shown("python")]]
    commands += [["bash", "-euc", line] for line in sorted(lines) if "export_onnx" not in line]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        folders = [shutil.copytree(home, tmp_path / str(n)) for n in range(len(commands))]
        list(
            workers.map(lambda command, own: run(*command, folder=own, **shell), commands, folders)
        )


def test_the_command_alone_on_the_path(bare: Path, home: Path, tmp_path: Path) -> None:
    """As pipx and uv put it there: a link to the command of an environment nobody has entered. A
    user's own model.py does not matter to it."""
    (tmp_path / "rse-transcribe").symlink_to(bare / "rse-transcribe")
    (home / "model.py").write_text("raise SystemExit('not mine')")
    shell = ["env", "-i", f"PATH={tmp_path}:/usr/bin:/bin", "sh", "-c"]
    try:
        said = run(*shell, "rse-transcribe --version; rse-transcribe song.wav -o -", folder=home)
    finally:
        (home / "model.py").unlink()
    version, head, *_ = said.splitlines()
    assert version == metadata.version("rse-transcribe")
    assert head.startswith("onset_s,offset_s,pitch,")


def test_the_library_names_the_extra_that_it_needs(bare: Path, home: Path) -> None:
    program = """if True:
        import rse_transcribe as r

        t = r.transcribe("song.wav")
        for call in (t.plot, lambda: __import__("model.export_onnx")):
            try:
                call()
            except (ImportError, SystemExit) as error:
                print(error)
    """
    assert run(bare / "python", "-c", program, folder=home).splitlines() == [
        "matplotlib is missing: pip install 'rse-transcribe[library]'",
        "onnx is missing: pip install 'rse-transcribe[onnx]'",
    ]


def test_the_command_serves(bare: Path, home: Path) -> None:
    reservation, port = reserved_port()
    command = [str(bare / "rse-transcribe"), "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": ""}
    with reservation, subprocess.Popen(command, env=environment) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            while not answers(f"{address}/readyz") and server.poll() is None:
                time.sleep(0.1)
            assert "<html" in httpx.get(address, timeout=120).text
            files = {"file": (home / "song.wav").read_bytes()}
            answer = httpx.post(f"{address}/transcribe?answer=midi", files=files, timeout=120)
            assert answer.content.startswith(b"MThd"), answer.text
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0


USER = """
from pathlib import Path

import numpy as np
from rse_transcribe import (
    Note, NoteEvent, PedalEvent, ResidualShuffleExchange, Stream, Transcription,
    available_models, load, transcribe,
)

model = load(available_models()[0])
transcription: Transcription = transcribe(Path("song.mp3"), model=model, lookahead_ms=100)
notes: list[Note] = transcription.notes
pitch: int = notes[0].pitch
instrument: str | None = notes[0].instrument
rows: int = transcription.frame_probabilities.shape[0]
transcription.save("song.mid")
transcribe(np.zeros(100), np.int64(48_000))
with Stream(sample_rate=48_000) as stream:
    for event in [*stream.push([0.0]), *stream.finish()]:
        if isinstance(event, NoteEvent):
            onset_s: float = event.time_s
        elif isinstance(event, PedalEvent):
            down: bool = event.down
ResidualShuffleExchange(64, blocks=2)
"""
WRONG = {
    'transcribe("song.mp3", look=100)': "call-arg",
    'transcribe("song.mp3").notes[0].pitch.lower()': "attr-defined",
    'Stream("48 kHz")': "arg-type",
    "load(5)": "arg-type",
}


def test_it_is_typed(bare: Path, tmp_path: Path) -> None:
    """mypy, strict, finds no fault in a user's program, and every one of another's."""
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(
        "\n".join(["from rse_transcribe import Stream, load, transcribe", *WRONG])
    )
    # torch has its own types: they take a minute and are not ours.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--hide-error-context"),
            *("--python-executable", bare / "python", "user.py", "wrong.py"),
        ],
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^(\w+)\.py:(\d+): error: .* \[([\w-]+)\]$", done.stdout, re.M)
    wanted = [("wrong", str(line), code) for line, code in enumerate(WRONG.values(), 2)]
    assert found == wanted, done.stdout + done.stderr
