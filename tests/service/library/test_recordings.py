"""Tests of ``transcribe`` and ``Transcriber``: kinds of input, threads, processes and errors."""

import io
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

import rse_transcribe
from rse_transcribe.arguments import as_float
from rse_transcribe.recordings import IncompleteError
from tests.fakes import FakeTranscriber
from tests.service.apps import PITCHES, RATE_HZ, melody


@pytest.fixture
def song(tmp_path: Path) -> Path:
    path = tmp_path / "song.flac"
    soundfile.write(path, melody(), RATE_HZ)
    return path


def transcribe(recording: Any, *args: Any, **options: Any) -> rse_transcribe.Transcription:
    return rse_transcribe.transcribe(recording, *args, model=FakeTranscriber(), **options)


def pitches(transcription: rse_transcribe.Transcription) -> list[int]:
    return [note.pitch for note in transcription.notes]


def test_all_kinds_of_files_give_the_same_notes(song: Path) -> None:
    readable = SimpleNamespace(read=io.BytesIO(song.read_bytes()).read)  # has no other method
    expected = transcribe(song).performance
    assert transcribe(str(song)).performance == expected
    assert transcribe(song.read_bytes()).performance == expected
    assert transcribe(io.BytesIO(song.read_bytes())).performance == expected
    assert transcribe(readable).performance == expected
    with subprocess.Popen(["cat", song], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        assert transcribe(cat.stdout).performance == expected


@pytest.mark.parametrize("instruments", ["Violin, kazoo", ["Violin", "Kazoo"]])
def test_instruments_are_a_list_or_a_string(song: Path, instruments: Any) -> None:
    with pytest.raises(ValueError, match="instruments must be among piano, .*, not kazoo$"):
        transcribe(song, instruments=instruments)
    with pytest.raises(ValueError, match="instruments must be among piano, .*, not kazoo$"):
        rse_transcribe.Stream(RATE_HZ, model=FakeTranscriber(), instruments=instruments)


def test_all_kinds_of_samples_give_the_same_notes(song: Path) -> None:
    notes = transcribe(song).notes
    samples, rate = soundfile.read(song)
    stereo = np.stack([(samples * 32768).astype(np.int16)] * 2, axis=1)
    tensor = torch.from_numpy(samples).requires_grad_()
    assert transcribe(samples, rate).notes == notes
    assert transcribe(samples.tolist(), float(rate)).notes == notes
    assert transcribe(tensor, np.int64(rate)).notes == notes
    assert transcribe(torch.from_numpy(stereo), rate).notes == notes
    assert transcribe(stereo, sample_rate=rate).notes == notes


def test_integer_samples_are_scaled_as_in_wav_files(tmp_path: Path) -> None:
    samples = np.array([-1.0, -0.5, 0.0, 0.5])
    for subtype, dtype, scale, zero in (
        ("PCM_U8", np.uint8, 128, 128),
        ("PCM_16", np.int16, 2**15, 0),
        ("PCM_32", np.int32, 2**31, 0),
    ):
        integers = (samples * scale + zero).astype(dtype)
        np.testing.assert_array_equal(as_float(integers), samples)
        big_endian = integers.astype(integers.dtype.newbyteorder(">"))
        np.testing.assert_array_equal(as_float(big_endian), samples)
        soundfile.write(tmp_path / "a.wav", samples, 8_000, subtype)
        assert (tmp_path / "a.wav").read_bytes().endswith(integers.tobytes())
    np.testing.assert_array_equal(as_float(torch.tensor([0, 128], dtype=torch.uint8)), [-1, 0])


def test_progress_bar_is_shown_in_a_terminal(
    song: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rse_transcribe.recordings._BAR_AFTER_S", 0)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # other tests import it
    transcribe(song)
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    transcribe(song, progress=False)
    assert capsys.readouterr().err == ""
    transcribe(song, progress=True)
    assert "song.flac   0% |" in capsys.readouterr().err


def test_transcriber_is_reusable_and_thread_safe(song: Path) -> None:
    expected = transcribe(song).performance
    transcriber = rse_transcribe.Transcriber(model=FakeTranscriber())
    with transcriber, ThreadPoolExecutor(3) as threads:
        results = threads.map(transcriber.transcribe, [song] * 6)
        assert [each.performance for each in results] == [expected] * 6
    with pytest.raises(RuntimeError, match="the transcriber is closed"):
        transcriber.transcribe(song)


def test_use_in_a_forked_process_is_rejected(song: Path) -> None:
    context = multiprocessing.get_context("fork")
    rejections = context.SimpleQueue()
    with (
        rse_transcribe.Transcriber(model=FakeTranscriber()) as transcriber,
        rse_transcribe.Stream(RATE_HZ, model=FakeTranscriber()) as stream,
    ):

        def use() -> None:
            for call in (lambda: transcriber.transcribe(song), lambda: stream.push(melody())):
                try:
                    call()
                except RuntimeError as error:
                    rejections.put(str(error))

        forked = context.Process(target=use, daemon=True)
        forked.start()
        forked.join(120)
        forked.kill()
        for _ in range(2):
            assert not rejections.empty()
            assert "start processes with spawn" in rejections.get()
        assert pitches(transcriber.transcribe(song)) == PITCHES


def test_corrupt_file_raises_with_the_notes_so_far(song: Path) -> None:
    data = song.read_bytes()
    torn = data[: len(data) * 2 // 3] + bytes(1000) + data[-200:]
    with pytest.raises(
        IncompleteError, match="the file is corrupt after 1.1 s: .*; incomplete result: 3 notes"
    ) as caught:
        transcribe(io.BytesIO(torn))
    assert pitches(caught.value.transcription)[:2] == PITCHES[:2]
    sent = pickle.loads(pickle.dumps(caught.value))  # a process pool sends errors so
    assert str(sent) == str(caught.value)
    assert pitches(sent.transcription) == pitches(caught.value.transcription)


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(100), None, "sample_rate is missing"),
        (np.zeros((0, 2), np.float32), 8_000, "no audio"),
        (np.zeros((2, 100)), 8_000, r"shape \[n\] or \[n, channels\].*, not \[2, 100\]"),
        ([[1.0, 2.0], [3.0]], 8_000, "samples must be an array, or lists of equal lengths"),
        ([1000] * 100, 8_000, "int16, int32 or uint8, not int64: convert a list of integers"),
        (np.full(100, np.nan), 8_000, "invalid samples replaced by silence: 100,"),
        (np.zeros(100), 44_100.5, "sample_rate must be .*, not 44100.5"),
    ],
)
def test_bad_samples_raise_a_clear_error(samples: Any, rate: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transcribe(samples, rate)


def test_bad_files_raise_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a readable audio file"):
        transcribe(b"no sound")
    with pytest.raises(FileNotFoundError):
        transcribe(tmp_path / "nothing.wav")
    with pytest.raises(ValueError, match=r"in text mode: use open\(\.\.\., 'rb'"):
        transcribe(io.StringIO("no sound"))
    with pytest.raises(ValueError, match="lookahead_ms must be greater than 0, not -1"):
        transcribe(melody(), RATE_HZ, lookahead_ms=-1)
