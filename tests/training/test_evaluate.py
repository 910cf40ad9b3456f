"""Tests of the evaluation command: output and exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.config import CENTRE_FRAME, FRAMES, LIVE, PAPER, ModelConfig
from service.protocol.options import StreamOptions
from tests.commands import run
from training.evaluate import MIDDLE_MS, main
from training.music.metrics import FIGURES


def test_the_number_of_processes_does_not_change_the_report(
    tones: Path, tmp_path: Path, tiny_weights: Path
) -> None:
    def evaluate(jobs: int) -> tuple[Any, str]:
        out = tmp_path / str(jobs) / "out.json"
        options = "--model", tiny_weights, "--label-shift-ms", 10, "--jobs", jobs, "--json", out
        status, printed, _ = run(main, "real", "--data-dir", tones, *options)
        assert status == 0
        return json.loads(out.read_text()), printed

    report, printed = evaluate(2)
    assert report == evaluate(1)[0]
    # The report has no delays, because no note was matched.
    assert set(report["mean"]) == set(report["recordings"]["tones"]) == {*FIGURES}
    assert set(report["definitions"]) == {*FIGURES}
    assert all(label in printed for label in (*FIGURES, "95 % interval"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "/no/such/folder"], "is not a folder"),
        (["--model", "unknown"], "no weights"),
        (["--lookahead-ms", "-5"], "lookahead"),
    ],
)
def test_invalid_input_causes_an_error_message(
    arguments: list[str], message: str, tones: Path
) -> None:
    status, _, error = run(main, "real", "--data-dir", tones, *arguments)
    assert status == 1
    assert message in error


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("real --data-dir . --jobs 0", "--jobs: must be at least 1, not 0"),
        ("families --synth . --seconds nan", "--seconds: must be at least 1, not nan"),
        ("families --synth . --seconds long", "--seconds: invalid float value: 'long'"),
    ],
)
def test_options_out_of_range_are_rejected(command: str, message: str) -> None:
    status, _, error = run(main, *command.split())
    assert status == 2
    assert message in error


@pytest.mark.parametrize("config", [PAPER, LIVE], ids=["paper", "live"])
def test_musicnet_is_scored_in_the_middle_of_the_window(config: ModelConfig) -> None:
    options = StreamOptions(lookahead_ms=MIDDLE_MS)
    assert FRAMES - options.lookahead_hops(config.sample_rate) == CENTRE_FRAME


def test_ctrl_c_prints_one_line(tones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("training.evaluate.evaluate_collection", interrupt)
    status, _, error = run(main, "real", "--data-dir", tones)
    assert (status, error) == (130, "python -m training.evaluate: interrupted\n")
