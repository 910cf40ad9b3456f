"""The optimiser whose steps of matrices are orthogonal."""

import pytest
import torch
from torch import nn

from model.config import RSEConfig
from model.symbols import SymbolConfig, SymbolNetwork
from training.loop.optimizer import ADAM_SIZE, Muon, parameter_groups


@pytest.mark.parametrize("shape", [(8, 32), (32, 8), (8, 8)])
def test_a_matrix_moves_as_far_whatever_its_gradient(shape: tuple[int, int]) -> None:
    torch.manual_seed(2)
    matrix = nn.Parameter(torch.zeros(shape))
    group = {"params": [matrix], "orthogonal": True, "weight_decay": 0.0}
    optimizer = Muon([group], lr=0.1, decoupled_weight_decay=True)
    gradient = torch.randn(shape)
    for scale in (1e-3, 1e3):
        with torch.no_grad():
            matrix.zero_()
        optimizer.state.clear()
        matrix.grad = scale * gradient
        optimizer.step()
        assert matrix.detach().square().mean().sqrt() == pytest.approx(0.1 * ADAM_SIZE, rel=0.3)
        assert (matrix * gradient).sum() < 0
        values = torch.linalg.svdvals(matrix)
        assert values.max() < 3.5 * values.min()  # orthogonal, nearly


def test_only_matrices_of_shuffle_exchange_networks_are_orthogonal() -> None:
    network = SymbolNetwork(SymbolConfig(5, 3, RSEConfig(maps=4, blocks=1)))
    names = {id(p): name for name, p in network.named_parameters()}
    groups = parameter_groups(network, 0.01, "muon")
    inner, other, rest = ({names[id(p)] for p in group["params"]} for group in groups)
    assert len(inner) == 6
    assert all(name.startswith("rse.") for name in inner)
    assert other == {"embedding.weight", "output.weight"}
    assert inner | other | rest == set(names.values())
