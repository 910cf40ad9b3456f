"""Dead switch units: how many are left out; test_network.py shows that nobody misses them."""

from model.fast.pruning import prune


def test_one_position_needs_one_unit_then_two_then_four() -> None:
    gathers = [layer.gather for layer in prune(8, 1, range(77, 78))]
    units = [len({place // 2 for place in gather}) if gather else 128 for gather in gathers]
    assert units == [128] * 8 + [64, 32, 16, 8, 4, 2, 1]
