"""Several processes that train together."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.storage import read_tensors
from training.loop.parallel import Shard
from training.presets import AlgorithmicRun
from training.run import parse, train

TINY = (
    "algorithmic --task sorting --preset minute --algorithmic.bins 8 16 --algorithmic.batch-size 8 "
    "--algorithmic.rse.maps 8 --algorithmic.examples-per-length 20 "
    "--algorithmic.validation-examples 8 --loop.steps 6 --loop.log-steps 2 "
    "--loop.optimizer radam --loop.bfloat16 False"
).split()


def test_shares_make_up_the_batch() -> None:
    rows = list(range(12))
    assert [rows[Shard(i, 3).rows(12)] for i in range(3)] == [rows[:4], rows[4:8], rows[8:]]
    with pytest.raises(ValueError, match="5 processes cannot share batches of 12"):
        Shard(0, 5).rows(12)


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two processes cannot share a GPU")
def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    alone = parse([*TINY, "--out", str(tmp_path / "alone")])
    assert isinstance(alone, AlgorithmicRun)
    train(alone)
    # The loopback interface needs no name service.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
        + ["-m", "training.run", *TINY]
        + ["--out", str(tmp_path / "both")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy_8") == 1  # the first process alone reports
    one, two = (read_tensors(tmp_path / run / "last.safetensors") for run in ("alone", "both"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4)
    # A run goes on in another number of processes, as the batches are the same.
    longer = replace(alone, out=tmp_path / "both", resume=True)
    train(replace(longer, loop=replace(alone.loop, steps=7)))
    train(replace(alone, resume=True, loop=replace(alone.loop, steps=7)))
    one, two = (read_tensors(tmp_path / run / "last.safetensors") for run in ("alone", "both"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4)
