"""The kernel against the unit it replaces: by Triton's interpreter, or on a GPU where one is."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.paths import REPOSITORY


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (extra: gpu)")
def test_the_kernel_computes_the_unit() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"  # read when Triton is imported: another process
    command = [sys.executable, "-m", "tests.model.fast.check_triton_switch", device]
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=280
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "cases agree" in result.stdout
