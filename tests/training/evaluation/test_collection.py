"""The loop over recordings: what cannot be used does not stop the others."""

from pathlib import Path

import numpy as np
import soundfile

from service.protocol.options import StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from training.evaluation.collection import Heard, checked, conditions, judged
from training.music.recordings import read_collection


def count(heard: Heard) -> int:
    return len(heard.estimated)


def test_labels_beyond_the_audio_are_reported(tones: Path) -> None:
    shown: list[str] = []
    with (tones / "tones.tsv").open("a") as labels:
        labels.write("\n99\t99.5\t60\t64")
    found = checked(read_collection(tones), 0.0, shown.append)
    assert shown == ["tones: 1 of 7 labels begin after the end of the audio (3.0 s)"]
    assert [recording.name for recording in found.recordings] == ["tones"]


def test_failures_are_collected_and_the_others_judged(tones: Path) -> None:
    (tones / "broken.wav").write_bytes(b"RIFF no music")
    spoilt = np.full(FAKE_RATE_HZ, np.nan, np.float32)
    soundfile.write(tones / "spoilt.wav", spoilt, FAKE_RATE_HZ, subtype="FLOAT")
    for name in ("broken", "spoilt"):
        (tones / f"{name}.tsv").write_text("0.1\t0.2\t60\t64")
    shown: list[str] = []
    given = read_collection(tones)
    found = checked(given, 0.0, shown.append)
    streams = [StreamOptions(lookahead_ms=ms) for ms in (50, 100)]
    outcomes = list(judged(found, FakeTranscriber, streams, 0.0, count, 1, shown.append))
    assert outcomes == [("tones", [6, 6])]
    assert found.failures.keys() == {"broken", "spoilt"}
    assert shown == [f"not scored: {reason}" for reason in found.failures.values()]
    assert not given.failures
    known = conditions(found, "fake", streams[0], 0.01)
    assert (known["lookahead_ms"], known["label_shift_ms"]) == (50, 10)
