"""Align a score with a recording of it: ``python -m training.align AUDIO SCORE --out LABELS``.

SCORE is a MIDI file of the notes as played, with repeats written out, at any tempo. LABELS is a TSV
with each note's onset and offset in seconds of the recording, pitch, velocity (0: unknown) and
confidence, 0 to 1. ``--coarse`` supplies a first alignment, a TSV with two header lines, then
score_s and audio_s in seconds; by default one is computed.

Training and ``training.evaluate`` read the labels. Offsets follow the score, so they differ from
the moments when keys are released.
"""

import sys
from pathlib import Path

from model.commands import documented_parser
from model.storage import load, shipped
from service.engine.local import LocalComputer
from training.music.scored.aligner import align_files, summary, write_labels


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.align", __doc__)
    parser.add_argument("audio", metavar="AUDIO", type=Path)
    parser.add_argument("score", metavar="SCORE", type=Path, help="a MIDI file")
    parser.add_argument("--out", type=Path, required=True, help="the TSV to write")
    parser.add_argument("--coarse", type=Path, help="a TSV with a first alignment")
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    options = parser.parse_args(arguments)
    try:
        with LocalComputer(load(options.model)) as computer:
            aligned, _ = align_files(options.audio, options.score, options.coarse, computer)
        write_labels(options.out, aligned)
    except (ValueError, OSError) as error:
        print(f"training.align: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {summary(aligned)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
