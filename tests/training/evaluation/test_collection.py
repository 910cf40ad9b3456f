"""Labels that do not fit their recording; test_real.py has recordings that cannot be used."""

from pathlib import Path

from training.evaluation.real import checked
from training.music.recordings import read_collection


def test_labels_beyond_the_audio_are_reported(tones: Path) -> None:
    shown: list[str] = []
    with (tones / "tones.tsv").open("a") as labels:
        labels.write("\n99\t99.5\t60\t64")
    found = checked(read_collection(tones), 0.0, shown.append)
    assert shown == ["tones: 1 of 7 labels begin after the end of the audio (3.0 s)"]
    assert [recording.name for recording in found.recordings] == ["tones"]
