"""Tests of the links between documents."""

import re
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FOLDERS = ("clients", "docker", "model", "service", "tests", "training")
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(
        path
        for folder in FOLDERS
        for path in sorted((REPOSITORY / folder).rglob("*.md"))
        if "node_modules" not in path.parts
    ),
]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", document.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_resolve(document: Path) -> None:
    for path, anchor in LINK.findall(CODE.sub("", document.read_text("utf-8"))):
        target = document.parent / path if path else document
        assert target.exists(), path
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{path}#{anchor}"
