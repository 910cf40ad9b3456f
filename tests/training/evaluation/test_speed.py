"""Test of the table that compares speed with the paper. It asserts no times."""

from training.evaluation.speed import table


def test_the_table_has_a_row_per_claim() -> None:
    lines = table(16, 8, (256,), (512, 1024), 1 << 12).splitlines()
    assert lines[2].startswith("| training: speed of RSE relative to SE (length) | 4 | ")
    assert lines[5].startswith(
        "| inference: speed of RSE relative to a layer of attention (length) | "
    )
    assert "(512), " in lines[5]
    assert lines[6].startswith("| 4,096 samples through the MusicNet network | 3.97 s for 2 M | ")
