from pathlib import Path

import pytest
import torch

from model.storage import WeightsError
from training.loop.run_folder import read_state, write_state

CPU = torch.device("cpu")


def test_a_state_is_of_one_configuration_though_fields_were_added_since(tmp_path: Path) -> None:
    write_state(tmp_path, {"config": {"maps": 4, "rse": {"blocks": 1}}, "step": 3})
    ours = {"maps": 4, "rse": {"blocks": 1, "added": True}, "since": 1}
    assert read_state(tmp_path, CPU, ours)["step"] == 3
    with pytest.raises(WeightsError, match=r"rse\.blocks is 1 there and 2 here"):
        read_state(tmp_path, CPU, {"maps": 4, "rse": {"blocks": 2}})
    with pytest.raises(WeightsError, match="maps is 4 there and None here"):
        read_state(tmp_path, CPU, {"rse": {"blocks": 1}})
