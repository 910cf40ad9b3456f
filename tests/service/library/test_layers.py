"""The shuffle-exchange network as a layer: its page, padding, errors, compiling and exporting."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rse_transcribe import ResidualShuffleExchange
from tests.paths import REPOSITORY


def examples() -> list[str]:
    page = (REPOSITORY / "model" / "LAYER.md").read_text()
    return re.findall(r"^ *```python\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)


def test_the_pages_examples_run_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    training, exporting = examples()
    exec(training, names)
    share = re.fullmatch(r"([\d.]+)% of the digits are in their place\n", capsys.readouterr().out)
    assert share
    assert float(share[1]) > 90
    exec(re.sub(r"^  ", "", exporting, flags=re.MULTILINE), names)
    x, lengths = torch.randn(3, 64, 32), torch.tensor([64, 9, 33])
    found = names["program"].module()(x, lengths)
    torch.testing.assert_close(found, names["layer"](x, lengths))


@pytest.mark.parametrize("unit", ["residual", "gated"])
def test_padding_has_no_influence(unit: Any) -> None:
    layer = ResidualShuffleExchange(6, unit=unit).eval()
    x, lengths = torch.randn(3, 8, 6), torch.tensor([5, 8, 7])
    together = layer(x, lengths)
    assert torch.equal(together, layer(x, lengths.tolist()))
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :length])
        torch.testing.assert_close(together[row : row + 1, :length], alone)
        assert not together[row, length:].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda layer: ResidualShuffleExchange(0), "^dim must be"),
        (lambda layer: ResidualShuffleExchange(4, hidden=0), "^hidden must be"),
        (lambda layer: ResidualShuffleExchange(4, norm="batch"), "^norm must be"),  # type: ignore[arg-type]
        (lambda layer: layer(torch.zeros(2, 8)), r"with dim = 4, got \(2, 8\)"),
        (lambda layer: layer(torch.zeros(2, 8, 6)), r"with dim = 4, got \(2, 8, 6\)"),
        (lambda layer: layer(torch.zeros(2, 0, 4)), "at least one element"),
        (lambda layer: layer(torch.zeros(2, 8, 4), torch.ones(3)), r"lengths of shape \(2,\)"),
    ],
)
def test_errors_say_what_does_not_fit(
    make: Callable[[ResidualShuffleExchange], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(ResidualShuffleExchange(4))


@torch.no_grad()
def test_compiled_units_need_no_new_graph_for_a_new_length() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    layer = ResidualShuffleExchange(8, blocks=2).eval()
    compiled = copy.deepcopy(layer)
    compiled.compile(backend=backend)
    counts = []
    for length in (5, 16, 40, 100, 7, 300):
        x = torch.randn(3, length, 8)
        torch.testing.assert_close(compiled(x), layer(x))
        counts.append(len(graphs))
    assert counts[0] < counts[1]  # the second length is the first that shows that it varies
    assert counts[1:] == [counts[1]] * 5
