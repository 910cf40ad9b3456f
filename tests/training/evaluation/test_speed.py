"""The table and the picture of the paper's claims of speed; nothing is timed here."""

import subprocess
import sys
from pathlib import Path

from matplotlib.image import imread

PROGRAM = """
import sys
from training.evaluation.speed import Job, main, measured

measured(Job("attention, n x n", "inference", 8, 1 << 17))  # 34 GB of weights
sys.exit(main(sys.argv[1:]))
"""


def test_one_command_prints_the_claims_and_draws_them(tmp_path: Path) -> None:
    done = subprocess.run(  # a process without threads, which may be forked
        [sys.executable, "-c", PROGRAM, "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "attention, n x n, inference, 131,072: out of memory" in done.stderr
    assert "| training: RSE times as fast as SE (length) | 4 | " in done.stdout
    assert "| 4,096 samples through the MusicNet network | 3.97 s for 2 M | " in done.stdout
    assert imread(tmp_path / "speed.png").std() > 0.05
