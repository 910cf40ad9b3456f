"""Settings of the training audio: its data and the length of its excerpts."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from model.validation import Count, Fraction, validated_dataclass

CACHE = Path("~/.cache/rse-transcribe").expanduser()


@validated_dataclass()
class SynthConfig:
    """Data from which excerpts are made, and the length of the excerpts."""

    root: Path  # Folder of data in the layout of ``training.music.synth``
    cache: Path  # Folder for the decoded bank (1 GB), recordings and alignments
    real_root: Path | None = None  # Folder of real recordings (training.music.real)
    real_probability: Fraction = 0.25  # Fraction of excerpts that come from real recordings
    excerpt_s: Annotated[float, Field(ge=1)] = 25.0  # Mean length of an excerpt in seconds
    pool_excerpts: Count = 32  # Excerpts from which a worker draws windows (about 3 MB each)
