"""Tests of the order of imports: a module imports its own layer and lower layers only."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.paths import REPOSITORY

# Layers from the lowest to the highest. Entries of one line do not import each other. The longest
# matching name is the layer of a module.
LAYERS = [
    ["model"],
    ["model.fast"],
    ["model.import_tf", "model.export_onnx"],
    ["service.protocol"],
    ["service.score"],
    ["clients"],
    ["service.settings", "service.helper_process"],
    ["service.audio"],
    ["service.notes"],
    ["service.stream"],
    ["service.engine"],
    ["service.ops.logs"],
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
HEIGHT = {layer: height for height, layers in enumerate(LAYERS) for layer in layers}
PACKAGES = sorted({layer.partition(".")[0] for layer in HEIGHT})
# Packages that each package may import, in addition to the order of layers.
PERMITTED = {
    "model": {"model"},
    "service": {"service", "model"},
    "training": {"training", "service", "model"},
    "clients": {"clients", "service.protocol", "service.score"},
}


def layer_of(module: str) -> str:
    """Return the layer of a module, or "" for a package itself."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in HEIGHT), "")


# Imports name the library without this prefix.
LIBRARY = "service.library."


def modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path.read_text(encoding="utf-8")


def own_module(name: str | None) -> str | None:
    """Return the name of a module of this repository, or None for other modules."""
    return next((n for n in (name or "", f"{LIBRARY}{name}") if n in SOURCES), None)


SOURCES = dict(modules())


def imports(source: str) -> Iterator[str]:
    """Yield modules of this repository that a source imports, also within functions."""
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:
        nodes += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))
        if isinstance(node, ast.Import):
            yield from filter(None, (own_module(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            if module := own_module(node.module):
                yield from (own_module(f"{module}.{alias.name}") or module for alias in node.names)


# Parse during collection, without other threads: in Python 3.11 concurrent parsing may fail
# (python/cpython#106905).
IMPORTS = {module: set(imports(source)) for module, source in SOURCES.items()}


def test_modules_import_lower_layers_only() -> None:
    for module, imported_modules in IMPORTS.items():
        layer = layer_of(module)
        package = module.partition(".")[0]
        assert layer or module == package, f"{module} has no layer"
        for imported in imported_modules:
            other, problem = layer_of(imported), f"{module} imports {imported}"
            assert any(f"{imported}.".startswith(f"{p}.") for p in PERMITTED[package]), problem
            assert other == layer or HEIGHT[other] < HEIGHT[layer], problem


def test_there_are_no_import_cycles() -> None:
    """Includes imports within functions."""
    graph = {module: imported - {module} for module, imported in IMPORTS.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
