"""The best weights that a machine has time for."""

import numpy as np
import pytest

from model.storage import shipped
from rse_transcribe import Stream, Transcriber, load, models


@pytest.mark.parametrize(
    ("parts", "chosen"), [((0.25, 0.1), "accurate"), ((0.26, 0.1), "live"), ((2, 0.3), "light")]
)
def test_auto_takes_the_best_within_a_quarter_of_the_length(
    parts: tuple[float, float], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = dict(zip(models.BEST_FIRST[:-1], parts, strict=True))
    monkeypatch.setattr(models, "part_of_length", lambda network: taken[network.config.name])
    with Transcriber(device="cpu") as transcriber:
        found = transcriber.transcribe(np.zeros(1000, np.float32), 8000)
    assert found.description["model"] == chosen


def test_all_shipped_weights_have_a_place() -> None:
    assert sorted(models.BEST_FIRST) == shipped()
    assert models.part_of_length(load("light", "cpu")) > 0


def test_a_stream_is_not_chosen_by_the_time_of_recordings() -> None:
    with pytest.raises(ValueError, match="no weights 'auto'"):
        Stream(48_000, model="auto")
