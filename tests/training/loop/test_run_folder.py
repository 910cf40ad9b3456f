"""What a run leaves in its folder."""

from pathlib import Path

from training.loop.run_folder import read_metrics, write_metrics


def test_steps_written_twice_count_once_and_half_a_line_is_passed_over(tmp_path: Path) -> None:
    def write(errors: dict[int, float]) -> None:
        for step, error in errors.items():
            write_metrics(tmp_path, "validation", step, 60, {"error": error})

    write({1: 0.5, 2: 0.4})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "st')  # as a full disk leaves it
    write({0: 1.0, 2: 0.3, 3: 0.2})  # the first of which is lost with it
    found = [(line["step"], line["error"]) for line in read_metrics(tmp_path)]
    assert found == [(1, 0.5), (2, 0.3), (3, 0.2)]
