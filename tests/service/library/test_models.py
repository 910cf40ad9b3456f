"""The best weights that a machine has time for."""

import numpy as np
import pytest

from model.storage import shipped
from rse_transcribe import Stream, Transcriber, load, models


@pytest.mark.parametrize(("part", "chosen"), [(0.25, "live"), (0.26, "light")])
def test_auto_takes_the_best_within_a_quarter_of_the_length(
    part: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "part_of_length", lambda network: part)
    with Transcriber(device="cpu") as transcriber:
        found = transcriber.transcribe(np.zeros(1000, np.float32), 8000)
    assert found.description["model"] == chosen


def test_the_best_are_shipped_and_can_be_timed() -> None:
    assert set(models.BEST_FIRST) < set(shipped())
    assert models.part_of_length(load("light", "cpu")) > 0


def test_a_stream_is_not_chosen_by_the_time_of_recordings() -> None:
    with pytest.raises(ValueError, match="no weights 'auto'"):
        Stream(48_000, model="auto")
