"""Paths of the repository and of the folder next to it."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Recordings and oracles beside the repository; tests that read them skip where there are none.
SHARED = Path(os.environ.get("SHARED", REPOSITORY.parent / "shared"))
