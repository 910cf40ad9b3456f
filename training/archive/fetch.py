"""`python -m training.archive.fetch DIR` fetches MusicNet (`training.musicnet.fetch`)."""

from __future__ import annotations

import sys

from training.musicnet.fetch import main

if __name__ == "__main__":
    sys.exit(main())
