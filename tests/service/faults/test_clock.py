"""A wall clock that jumps harms nothing: no duration is measured with it."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

import service
from tests.service.apps import serving, transcribe

# Replicas on several nodes have no other clock in common; a jump ends their tokens early or late.
SHARED_CLOCK = "cluster/deployment.py"
ROOT = Path(service.__path__[0])
SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / SHARED_CLOCK]
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_reads_the_wall_clock(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in WALL_CLOCKS
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            assert not {"time", "time_ns"} & {alias.name for alias in node.names}


def test_sessions_go_on_while_the_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    now, jump = time.time, -86_400.0

    def jumping() -> float:
        nonlocal jump
        jump *= -2
        return now() + jump

    with serving() as (client, _):
        before = transcribe(client)
        monkeypatch.setattr(time, "time", jumping)
        assert transcribe(client) == before
