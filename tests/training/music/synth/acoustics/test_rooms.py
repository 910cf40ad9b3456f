import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from model.config import SAMPLE_RATE
from training.music.synth.acoustics.rooms import DIRECT_S, Room, load_rooms, measured_response

T60_S = 0.8


def write_rooms(root: Path) -> None:
    """Two microphones in a hall, and the inside of a piano."""
    (root / "rooms").mkdir()
    rng = np.random.default_rng(0)
    rooms = []
    for name, kind in (("Hall_L", "hall"), ("Hall_R", "hall"), ("Box_L", "piano body")):
        time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
        response = 0.05 * rng.standard_normal(SAMPLE_RATE) * np.exp(-6.91 * time / T60_S)
        response[:55] = 0
        response[55] = 0.9
        soundfile.write(root / f"rooms/{name}.flac", response, SAMPLE_RATE)
        entry = {"name": name, "kind": kind, "file": f"rooms/{name}.flac", "t60_s": T60_S}
        rooms.append(entry | {"direct_sample": 55, "licence": "CC0", "attribution": "made up"})
    index = {"sample_rate": SAMPLE_RATE, "rooms": rooms}
    (root / "rooms.json").write_text(json.dumps(index))


@pytest.fixture
def rooms(tmp_path: Path) -> tuple[Room, ...]:
    write_rooms(tmp_path)
    return load_rooms(tmp_path, SAMPLE_RATE)


def test_the_inside_of_a_piano_is_no_room_and_another_rate_is_refused(
    rooms: tuple[Room, ...], tmp_path: Path
) -> None:
    assert [room.place for room in rooms] == ["Hall", "Hall"]
    with pytest.raises(ValueError, match="11025 Hz"):
        load_rooms(tmp_path, 22050)
    assert load_rooms(tmp_path / "rooms", SAMPLE_RATE) == ()


@pytest.mark.parametrize("seed", range(4))
def test_the_direct_sound_stays_first_and_loudest(rooms: tuple[Room, ...], seed: int) -> None:
    response = measured_response(rooms, SAMPLE_RATE, np.random.default_rng(seed))
    assert response[0] == 1
    assert np.abs(response).argmax() == 0
    # Nothing but a second microphone comes as early as the first reflections of the room.
    assert np.count_nonzero(response[1 : int(DIRECT_S * SAMPLE_RATE)]) <= 1
