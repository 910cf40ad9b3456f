"""The file client as a command: what it sends, what it writes, how it fails."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import mido
import numpy as np
import pytest
import soundfile

from clients import backoff, file
from clients.client import TranscriptionClient
from clients.file import main
from clients.recording import Recording
from tests.clients.fake_service import Behaviour, FakeService, nobody
from tests.conftest import REPOSITORY

RATE = 16_000


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_DELAY_S", 0.001)


def write(path: Path, seconds: float, channels: int = 1, rate: int = RATE, **how: str) -> Path:
    time_s = np.arange(round(seconds * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * 440 * time_s)
    soundfile.write(path, np.stack([tone] * channels, axis=1), rate, **how)
    return path


async def run(service: FakeService, *arguments: str | Path) -> int:
    """The command line in a thread, as it brings its own event loop."""
    command = [*map(str, arguments), "--url", service.url]
    return await asyncio.to_thread(main, command)


async def test_a_recording_becomes_midi_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav", 3.1)
    out, notes = tmp_path / "out.mid", tmp_path / "out.json"
    async with FakeService().running() as service:
        assert await run(service, song, "-o", out, "--json", notes, "--lookahead-ms", "50") == 0
        (heard,) = service.sessions
    assert heard.stopped
    assert heard.start["lookahead_ms"] == 50
    assert heard.start["block_frames"] == file.DEFAULT_BLOCK_FRAMES
    pitches = [m.note for m in mido.MidiFile(out) if m.type == "note_on"]
    assert pitches == [60, 61, 62]
    described = json.loads(notes.read_text())
    assert described["complete"]
    assert described["duration_s"] == pytest.approx(3.1)
    assert [(n["pitch"], n["onset_s"], n["offset_s"]) for n in described["notes"]] == [
        (60, 0.25, 0.75),
        (61, 1.25, 1.75),
        (62, 2.25, 2.75),
    ]
    assert "3 notes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "channels", "subtype", "encoding", "sent_channels"),
    [
        ("a.wav", 1, "PCM_16", "pcm_s16le", 1),
        ("a.wav", 2, "PCM_24", "pcm_f32le", 2),
        ("a.flac", 2, "PCM_16", "pcm_s16le", 2),
        ("a.ogg", 1, "VORBIS", "pcm_f32le", 1),
        ("a.mp3", 2, "MPEG_LAYER_III", "pcm_f32le", 2),
        ("a.wav", 4, "PCM_16", "pcm_f32le", 1),
    ],
)
async def test_the_audio_is_sent_as_it_is(
    tmp_path: Path, name: str, channels: int, subtype: str, encoding: str, sent_channels: int
) -> None:
    path = write(tmp_path / name, 1.3, channels, subtype=subtype)
    async with FakeService().running() as service:
        assert await run(service, path) == 0
        (heard,) = service.sessions
    assert heard.start["encoding"] == encoding
    assert heard.start["sample_rate"] == RATE
    assert heard.start["channels"] == sent_channels
    kind = "int16" if encoding == "pcm_s16le" else "float32"
    expected, _ = soundfile.read(path, dtype="float32" if channels == 4 else kind, always_2d=True)
    if channels == 4:
        expected = expected.mean(axis=1, keepdims=True)
    sent = np.frombuffer(bytes(heard.audio), np.dtype(kind)).reshape(-1, sent_channels)
    # libsndfile rounds the last bit of MP3 differently from read to read.
    np.testing.assert_allclose(sent, expected, rtol=0, atol=1e-6 if name.endswith("mp3") else 0)
    assert path.with_suffix(".mid").exists()


async def test_folders_and_patterns_are_searched_and_some_are_sent_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    album = tmp_path / "album"
    (album / "encore").mkdir(parents=True)
    (album / "cover.png").write_text("no audio")
    for name in ("b.wav", "a.FLAC", "encore/c.ogg"):
        write(album / name, 1.3, subtype="VORBIS" if name.endswith("ogg") else "PCM_16")
    live = [write(tmp_path / f"live-{number}.wav", 1.3) for number in (1, 2)]
    out = tmp_path / "midi"
    async with FakeService(Behaviour(seconds_to_transcribe_a_second=0.1)).running() as service:
        assert (
            await run(service, album, tmp_path / "live-*", live[0], "-o", out, "--jobs", "2") == 0
        )
        assert service.most_at_a_time == 2
    names = ["a.mid", "b.mid", "c.mid", "live-1.mid", "live-2.mid"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert capsys.readouterr().out.count("2 notes") == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/a.wav", "{tmp}/other", "-o", "{tmp}/midi"], "two recordings would be written to"),
        (["{tmp}/empty"], "no recordings there"),
        (["-"], "- needs --rate"),
        (["{tmp}/a.wav", "--jobs", "0"], "--jobs is a number from 1"),
    ],
)
def test_wrong_usage_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "a.wav", tmp_path / "other" / "a.wav"):
        write(path, 1)
    with pytest.raises(SystemExit) as caught:
        main([argument.format(tmp=tmp_path) for argument in arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def piped(service: FakeService, audio: bytes, *arguments: str | Path) -> tuple[int, str]:
    """The command with ``audio`` on its standard input; its status and all it says."""
    command = [sys.executable, "-m", "clients.file", "-", "--url", service.url]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        input=audio,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=REPOSITORY,
        timeout=100,
    )
    return done.returncode, done.stdout.decode()


async def test_raw_pcm_comes_through_a_pipe(tmp_path: Path) -> None:
    audio = np.arange(2 * 2 * RATE).astype("<f4").tobytes()  # two seconds, two channels
    out, notes = tmp_path / "out.mid", tmp_path / "out.json"
    how = ["--rate", str(RATE), "--channels", "2", "--encoding", "pcm_f32le"]
    async with FakeService().running() as service:
        status, said = await asyncio.to_thread(
            piped, service, audio, *how, "-o", out, "--json", notes
        )
        assert (status, "2 notes" in said) == (0, True), said
        (heard,) = service.sessions
        assert bytes(heard.audio) == audio
        status, said = await asyncio.to_thread(piped, service, audio[:-3], *how, "-o", out)
        assert (status, "ended within a sample" in said) == (1, True), said
    assert heard.start["channels"] == 2
    assert [m.note for m in mido.MidiFile(out) if m.type == "note_on"] == [60, 61]
    described = json.loads(notes.read_text())
    assert (described["file"], described["duration_s"]) == ("stdin", 2.0)


async def test_several_files_go_to_a_folder_and_one_bad_one_does_not_stop_the_rest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, last = write(tmp_path / "first.wav", 1), write(tmp_path / "last.wav", 1)
    bad, empty = tmp_path / "bad.wav", write(tmp_path / "empty.wav", 0)
    bad.write_text("no audio at all")
    out = tmp_path / "midi"
    async with FakeService().running() as service:
        status = await run(service, first, bad, empty, tmp_path / "none.wav", last, "-o", out)
        assert len(service.sessions) == 2
    assert status == 1
    assert sorted(path.name for path in out.iterdir()) == ["first.mid", "last.mid"]
    complaints = capfd.readouterr().err.replace("\n", "")
    assert "bad.wav: cannot be read" in complaints
    assert "empty.wav: holds no audio" in complaints
    assert "none.wav: does not exist" in complaints


@pytest.mark.parametrize("option", ["-o", "--json"])
async def test_a_place_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    song = write(tmp_path / "song.wav", 1)
    async with FakeService().running() as service:
        with pytest.raises(SystemExit, match="2"):
            await run(service, song, option, tmp_path / "nowhere" / "song.out")
        assert not service.sessions
    assert "nowhere is no folder" in capfd.readouterr().err.replace("\n", "")


async def test_a_fault_half_way_keeps_what_came_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav", 6)
    async with FakeService(Behaviour(fail_at_samples=2 * RATE)).running() as service:
        assert await run(service, song, "--json", tmp_path / "song.json") == 1
    assert "NaN in audio" in capfd.readouterr().err
    assert song.with_suffix(".mid").read_bytes().startswith(b"MThd")
    described = json.loads((tmp_path / "song.json").read_text())
    assert not described["complete"]
    assert len(described["notes"]) >= 2
    assert all(note["offset_s"] is not None for note in described["notes"])


# What the flow control leaves unacknowledged is 2 s at most: at 5 s, two notes were told of.
BREAKS = [
    (Behaviour(drop_at_samples=5 * RATE), "connection was lost"),
    (Behaviour(fail_at_samples=5 * RATE, done_after_error=False), "NaN in audio"),
]


@pytest.mark.parametrize(("behaviour", "complaint"), BREAKS)
async def test_a_session_that_breaks_off_leaves_the_notes_it_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], behaviour: Behaviour, complaint: str
) -> None:
    song, out, notes = write(tmp_path / "song.wav", 8), tmp_path / "a.mid", tmp_path / "a.json"
    async with FakeService(behaviour).running() as service:
        assert await run(service, song, "-o", out, "--json", notes) == 1
    told = capfd.readouterr()
    assert complaint in told.err
    assert "incomplete" in told.err
    assert str(out) in told.err
    assert told.out == ""
    described = json.loads(notes.read_text())
    assert not described["complete"]
    assert len(described["notes"]) >= 2
    now_s = 0.0
    times_s: dict[tuple[str, int], float] = {}  # the pitches of the notes all differ
    for message in mido.MidiFile(out):
        now_s += message.time
        if message.type in ("note_on", "note_off"):
            times_s[message.type, message.note] = now_s
    expected = {("note_on", note["pitch"]): note["onset_s"] for note in described["notes"]}
    expected |= {("note_off", note["pitch"]): note["offset_s"] for note in described["notes"]}
    assert times_s == pytest.approx(expected, abs=0.002)


async def test_a_session_that_told_of_no_note_writes_no_midi_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It would take the place of an earlier, whole one."""
    song = write(tmp_path / "song.wav", 1)
    song.with_suffix(".mid").write_text("of yesterday")
    async with FakeService(Behaviour(drop_at_samples=1)).running() as service:
        # Dropped at its first audio: no frame of it was transcribed.
        assert await run(service, song, "--realtime") == 1
    assert "0 notes came before" in capfd.readouterr().err
    assert song.with_suffix(".mid").read_text() == "of yesterday"


async def test_a_full_or_absent_service_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav", 1)
    behaviour = Behaviour(refuse_with=HTTPStatus.SERVICE_UNAVAILABLE)
    async with FakeService(behaviour).running() as service:
        assert await run(service, song) == file.NO_SERVICE
        assert "all sessions are taken" in capfd.readouterr().err
    with nobody() as service.url:
        assert await run(service, song) == file.NO_SERVICE
    assert "cannot connect" in capfd.readouterr().err


async def test_realtime_keeps_the_pace_of_the_music(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that only sleeping moves, so that no machine is too slow for it."""
    now = 100.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    real_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    async with FakeService().running() as service:
        recording = Recording(write(tmp_path / "song.wav", 2.0))
        client = TranscriptionClient(service.url, recording.options())
        await client.connect()
        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", lambda: now)
            patch.setattr("asyncio.sleep", sleep)
            await file._send(client, recording, realtime=True)
        assert asyncio.sleep is real_sleep
        await client.stop()
        recording.close()
        (heard,) = service.sessions
    assert now - 100.0 == pytest.approx(2.0)
    assert heard.largest_message == 2 * round(file.REALTIME_READ_S * RATE)


async def test_a_rate_that_the_service_does_not_take(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    song = write(tmp_path / "song.wav", 1, rate=4_000)
    async with FakeService().running() as service:
        assert await run(service, song) == 1
        assert service.sessions == []
    assert "8000 to 192000 Hz" in capfd.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(("tempo", "bpm"), [("120", 120), ("96.5", 96.5), ("auto", 60)])
async def test_the_tempo_of_the_file_is_chosen_or_found(
    tmp_path: Path, tempo: str, bpm: float
) -> None:
    song = write(tmp_path / "song.wav", 12.2)  # a note a second
    async with FakeService().running() as service:
        assert await run(service, song, "--tempo", tempo) == 0
    told = [m.tempo for m in mido.MidiFile(song.with_suffix(".mid")) if m.type == "set_tempo"]
    assert 60e6 / told[-1] == pytest.approx(bpm, rel=0.003)


@pytest.mark.parametrize("tempo", ["fast", "0", "nan"])
def test_an_impossible_tempo_is_wrong_usage(tempo: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["song.wav", "--tempo", tempo])
