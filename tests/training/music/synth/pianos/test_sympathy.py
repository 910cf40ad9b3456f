from __future__ import annotations

import pytest

from model.config import SAMPLE_RATE
from tests.training.music.synth.pianos.sounds import around, level_db, press, tone
from training.music.synth.pianos.pedal import (
    pedal_depth,
)
from training.music.synth.pianos.sympathy import strings_response, sympathetic


def test_free_strings_sound_along_until_the_pedal_is_up() -> None:
    sound = tone(48, 2.5)
    sound[SAMPLE_RATE // 2 :] = 0
    response = strings_response(0, SAMPLE_RATE)
    depth = pedal_depth(press((0.1, 1.2, 1)), len(sound), SAMPLE_RATE)
    rung = sympathetic(sound, depth, -20, 0.1, response, SAMPLE_RATE)
    assert around(rung, 0.9) > -60
    assert around(rung, 0.05) < around(rung, 0.9) - 40
    assert around(rung, 1.8) < around(rung, 1.1) - 30
    assert level_db(rung) == pytest.approx(level_db(sound * (depth > 0)) - 20, abs=1)
