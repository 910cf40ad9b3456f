"""Imports go one way: a module may use its own room and those below it, never one above."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.paths import REPOSITORY

# From the bottom to the top; rooms of one line know nothing of each other. The longest name that
# fits tells a module's room.
LAYERS = [
    ["model"],
    ["model.fast"],
    ["model.import_tf", "model.export_onnx"],
    ["service.protocol"],
    ["service.score"],
    ["clients"],
    ["service.settings"],
    ["service.audio"],
    ["service.notes"],
    ["service.stream"],
    ["service.engine"],
    ["service.workers"],
    ["service.access"],
    ["service.ops"],
    ["service.state"],
    ["service.health", "service.live", "service.upload"],
    ["service.server"],
    ["service.app"],
    ["service.cluster", "service.__main__"],
    ["service.library"],
    ["training.arrays"],
    ["training.loop"],
    ["training.music"],
    ["training.music.synth"],
    ["training.music.families"],
    ["training.musicnet"],
    ["training.music_task", "training.algorithmic", "training.lambada"],
    ["training.presets"],
    ["training.evaluation"],
    ["training.shipping"],
    ["training.fine_tune"],
    ["training.run", "training.evaluate"],
    ["training.seeds"],
]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
PACKAGES = sorted({room.partition(".")[0] for room in HEIGHT})
# Beside the layers: what whole packages may use of each other.
USES = {
    "model": {"model"},
    "service": {"service", "model"},
    "training": {"training", "service", "model"},
    "clients": {"clients", "service.protocol", "service.score"},
}


def room_of(module: str) -> str:
    """The longest room that holds a module; "" of a package itself."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in HEIGHT), "")


# The library is imported as a package of its own.
LIBRARY = "service.library."


def modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path.read_text(encoding="utf-8")


def ours(name: str | None) -> str | None:
    """The module's name here if it is one of ours."""
    known = (one for one in (name or "", f"{LIBRARY}{name}") if one in SOURCES)
    return next(known, None)


SOURCES = dict(modules())


def imports(source: str) -> Iterator[str]:
    """Modules of ours that a source imports, at its top or within functions."""
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:
        nodes += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))
        if isinstance(node, ast.Import):
            yield from filter(None, (ours(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            if module := ours(node.module):
                yield from (ours(f"{module}.{alias.name}") or module for alias in node.names)


# While tests are collected, when no other thread runs: Python 3.11 may fail to parse beside one
# (python/cpython#106905).
IMPORTS = {module: set(imports(source)) for module, source in SOURCES.items()}


def test_imports_go_down() -> None:
    for module, imports_of_it in IMPORTS.items():
        room = room_of(module)
        package = module.partition(".")[0]
        assert room or module == package, f"{module} has no room"
        for imported in imports_of_it:
            below, problem = room_of(imported), f"{module} imports {imported}"
            assert any(f"{imported}.".startswith(f"{use}.") for use in USES[package]), problem
            assert below == room or HEIGHT[below] < HEIGHT[room], problem


def test_no_circle_of_modules() -> None:
    """Imports within functions count too."""
    graph = {module: imported - {module} for module, imported in IMPORTS.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
