"""``transcribe`` gives the notes of ``POST /transcribe``, from wherever it is called."""

import asyncio
import io
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import rse_transcribe
from rse_transcribe.recordings import IncompleteError
from tests.conftest import REPOSITORY
from tests.fakes import FakeTranscriber
from tests.service.apps import DURATION_S, PITCHES, RATE_HZ, melody, serving


@pytest.fixture
def song(tmp_path: Path) -> Path:
    path = tmp_path / "song.flac"
    soundfile.write(path, melody(), RATE_HZ)
    return path


def transcribe(recording: Any, *args: Any, **options: Any) -> rse_transcribe.Transcription:
    return rse_transcribe.transcribe(recording, *args, model=FakeTranscriber(), **options)


def pitches(transcription: rse_transcribe.Transcription) -> list[int]:
    return [note.pitch for note in transcription.notes]


def test_a_file_gives_what_the_service_answers(song: Path, tmp_path: Path) -> None:
    transcription = transcribe(song)
    with serving() as (client, _):
        wanted = {
            answer: client.post(
                "/transcribe", files={"file": song.read_bytes()}, params={"answer": answer}
            )
            for answer in ("json", "midi")
        }
    transcription.save(tmp_path / "song.json")
    transcription.save(tmp_path / "song.mid")
    assert json.loads((tmp_path / "song.json").read_text()) == wanted["json"].json()
    assert (tmp_path / "song.mid").read_bytes() == wanted["midi"].content
    assert pitches(transcription) == PITCHES


def test_files_pipes_and_samples_give_the_same_notes(song: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    notes = transcribe(song).notes
    samples, rate = soundfile.read(song)
    whole = np.stack([(samples * 32768).astype(np.int16)] * 2, axis=1)
    assert transcribe(str(song)).notes == notes
    assert transcribe(io.BytesIO(song.read_bytes())).notes == notes
    assert transcribe(Pipe(song.read_bytes())).notes == notes
    assert transcribe(samples, rate).notes == notes
    assert transcribe(whole, sample_rate=rate).notes == notes


def test_lookahead_is_taken(song: Path) -> None:
    assert transcribe(song, lookahead_ms=100).description["lookahead_ms"] == pytest.approx(
        93, abs=1
    )


def test_frames_cover_the_recording(song: Path) -> None:
    transcription = transcribe(song)
    frames = transcription.frame_probabilities
    assert frames.shape == (round(DURATION_S * transcription.frame_rate_hz), 128)
    assert frames.dtype == np.float32
    sounding = frames[round(0.5 * transcription.frame_rate_hz)]
    assert sounding.argmax() == PITCHES[0]


def test_within_a_running_event_loop(song: Path) -> None:
    async def cell() -> list[int]:
        return pitches(transcribe(song))

    assert asyncio.run(cell()) == PITCHES


def test_in_threads(song: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        results = [threads.submit(transcribe, song) for _ in range(3)]
    assert [pitches(result.result()) for result in results] == [PITCHES] * 3


def test_a_damaged_file_keeps_what_was_heard(song: Path) -> None:
    data = song.read_bytes()
    torn = data[: len(data) * 2 // 3] + bytes(1000) + data[-200:]
    with pytest.raises(IncompleteError, match="incomplete: 1 notes came before") as caught:
        transcribe(io.BytesIO(torn))
    assert pitches(caught.value.transcription) == PITCHES[:1]


@pytest.mark.parametrize(
    ("samples", "rate", "complaint"),
    [
        (np.zeros(100), None, "samples need their sample_rate in Hz"),
        (np.zeros((2, 100)), 8_000, r"shape \[n\] or \[n, channels\], not \[2, 100\]"),
        (np.zeros(100, complex), 8_000, "floats or signed integers, not complex128"),
        (np.zeros(0), 8_000, "holds no audio"),
        (np.zeros(100), 4_000, "sample_rate must be"),
    ],
)
def test_bad_samples_get_one_clear_error(
    samples: np.ndarray, rate: int | None, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        transcribe(samples, rate)


def test_bad_files_get_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(ValueError, match="not a readable audio file"):
        transcribe(tmp_path / "text.wav")
    with pytest.raises(FileNotFoundError):
        transcribe(tmp_path / "nothing.wav")


def test_no_server_is_imported(song: Path) -> None:
    """Nor any other part of it that a file does not need."""
    program = """if True:
        import sys, rse_transcribe
        assert "torch" not in sys.modules, "the names are imported as they are used"
        rse_transcribe.transcribe(sys.argv[1])
        with rse_transcribe.Stream(48_000) as stream:
            stream.finish()
        servers = {"fastapi", "starlette", "uvicorn", "prometheus_client", "pydantic", "ray"}
        assert not servers & set(sys.modules), servers & set(sys.modules)
    """
    run = subprocess.run(
        [sys.executable, "-c", program, str(song)],
        cwd=REPOSITORY / "service" / "library",
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
