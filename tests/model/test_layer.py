"""The shuffle-exchange network as a layer of other models: its page, padding and compiling."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from model.config import RSEConfig
from model.rse import ResidualShuffleExchange
from tests.paths import REPOSITORY


def test_the_pages_examples_run_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "model" / "LAYER.md").read_text()
    training, exporting = re.findall(r"^ *```python\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    exec(training, names)
    share = re.fullmatch(r"([\d.]+)% of the digits are in their place\n", capsys.readouterr().out)
    assert share
    assert float(share[1]) > 90
    exec(re.sub(r"^  ", "", exporting, flags=re.MULTILINE), names)
    x = torch.randn(3, 64, 32)
    torch.testing.assert_close(names["program"].module()(x), names["layer"](x))


@torch.no_grad()
def test_compiled_units_need_no_new_graph_for_a_new_length() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    layer = ResidualShuffleExchange(RSEConfig(maps=8, blocks=2)).eval()
    compiled = copy.deepcopy(layer)
    compiled.compile(backend=backend)
    counts = []
    for length in (5, 16, 40, 100, 7, 300):
        x = torch.randn(3, length, 8)
        torch.testing.assert_close(compiled(x), layer(x))
        counts.append(len(graphs))
    assert counts[0] < counts[1]  # the second length is the first that shows that it varies
    assert counts[1:] == [counts[1]] * 5
