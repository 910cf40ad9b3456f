"""Paths of the repository and of the folder next to it."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Folder of recordings and recorded outputs. Tests that need it skip if it is missing.
SHARED = Path(os.environ.get("SHARED", REPOSITORY.parent / "shared"))
