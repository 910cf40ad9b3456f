"""Align a score with a recording of it: ``python -m training.align AUDIO SCORE --out LABELS``.

SCORE is a MIDI file with the notes that are played, repeats written out, at any tempo. LABELS
becomes a TSV with onset and offset in seconds of the recording, pitch, velocity (0: a score does
not know it) and the confidence of each note, 0 to 1. ``--coarse`` gives a first alignment: a TSV
with two lines of heading, then score_s and audio_s in seconds; without it one is found.

Training excerpts and ``training.evaluate`` read the labels; ends are the score's and differ from
when keys are let go.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from model.storage import WeightsError, load, shipped
from service.engine.engine import Engine
from training.music.scored.aligner import align_files, summary, write_labels


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("audio", metavar="AUDIO", type=Path)
    parser.add_argument("score", metavar="SCORE", type=Path, help="a MIDI file")
    parser.add_argument("--out", type=Path, required=True, help="the TSV to write")
    parser.add_argument("--coarse", type=Path, help="a first alignment")
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    options = parser.parse_args(arguments)
    try:
        with Engine(load(options.model)) as engine:
            aligned = align_files(options.audio, options.score, options.coarse, engine)
        write_labels(options.out, aligned)
    except (WeightsError, ValueError, OSError) as error:
        print(f"training.align: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {summary(aligned)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
