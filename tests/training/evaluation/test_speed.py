"""Test of the table that compares speed with the paper. It asserts no times."""

from training.evaluation.speed import table


def test_the_table_has_a_row_per_claim() -> None:
    lines = table(8, 4, (128,), (128, 256), 1 << 10).splitlines()
    assert lines[2].startswith("| training: speed of RSE relative to SE (length) | 4 | ")
    assert lines[5].startswith(
        "| inference: speed of RSE relative to a layer of attention (length) | "
    )
    assert "(128), " in lines[5]
    assert lines[6].startswith("| 1,024 samples through the MusicNet network | 3.97 s for 2 M | ")
