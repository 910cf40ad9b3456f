"""Configurations of small networks for tests."""

from dataclasses import replace

from model.config import LIVE, PAPER, FilterbankConfig, RSEConfig

TINY = replace(
    LIVE, front_end=FilterbankConfig(channels=2, convolutions=1), rse=RSEConfig(maps=4, blocks=1)
)
SMALL = RSEConfig(maps=12, blocks=1)
FILTERBANK = replace(LIVE, rse=SMALL, front_end=FilterbankConfig(channels=8, convolutions=1))
HISTORY = replace(
    FILTERBANK,
    front_end=FilterbankConfig(channels=8, convolutions=1, lookahead=256, history=True),
)
STRIDED = replace(PAPER, rse=SMALL)
