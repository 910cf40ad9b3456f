"""Analyses recorded voices: finds their syllables, spectral envelopes and aperiodicity.

The files ``speech.json`` and ``singing.json`` list recordings. Each has ``file``, ``speaker`` or
``singer``, and optionally ``held_out``. WORLD (M. Morise, F. Yokomori and K. Ozawa, 2016) separates
pitch from timbre. Its results are cached because the analysis is slow.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from training.arrays import F32
from training.music.recordings import digest, read_audio, stored_arrays

RATE = 16_000  # sample rate of the analysis in Hz
FRAMES_S = 200  # analysis frames per second
FFT = 1024  # FFT size of the spectral envelopes, which WORLD chooses at RATE
COEFFICIENTS = 60  # number of coefficients of a coded envelope, whose error is at most 2 dB
HELD_OUT_SINGERS = ("Erithacus", "sms_singing-female")
"""Singers of ``singing.json`` that are used only for validation. The file itself marks none."""
CACHE_VERSION = 2

QUIET_DB = -28.0  # voiced frames this far below loud frames do not belong to a syllable
DIP_DB = -6.0  # level of a dip relative to the loudest frame; long voiced runs are divided there
CORE_DB = -10.0  # level at which a vowel starts and ends, relative to its loudest frame
SHORTEST, LONGEST = 14, 60  # frames; shorter voiced runs are omitted, longer ones divided at dips
CONSONANT = 24  # maximum number of frames before a syllable's voiced frames


@dataclass(frozen=True)
class Syllable:
    """Parts of a syllable. The first four fields are the first frames of its parts."""

    begin: int  # consonant
    voiced: int  # voiced attack
    vowel: int
    release: int  # decay of the vowel
    end: int  # the frame after the syllable
    level_db: float  # level of the loudest frame in dB


@dataclass(frozen=True)
class Singer:
    """The recordings of one person."""

    name: str
    held_out: bool
    sings: bool  # true if the recordings are sung
    envelope: NDArray[np.float16]  # [frames, COEFFICIENTS], coded
    aperiodicity: NDArray[np.float16]  # [frames, bands], coded
    syllables: tuple[Syllable, ...]
    pitch: float  # MIDI number of the median f0


@lru_cache(maxsize=2)
def load_singers(folder: Path, cache: Path) -> tuple[Singer, ...]:
    """Load the voices in a folder that have at least two syllables. Return none if the folder is
    missing. For the cache and errors see ``load_singer``."""
    singers = []
    for index, key in (("speech.json", "speaker"), ("singing.json", "singer")):
        people: dict[str, list[dict[str, Any]]] = {}
        if (folder / index).exists():
            for entry in json.loads((folder / index).read_bytes())["files"]:
                people.setdefault(entry[key], []).append(entry)
        for name, files in people.items():
            held_out = name in HELD_OUT_SINGERS or any(entry.get("held_out") for entry in files)
            paths = [folder / entry["file"] for entry in files]
            singers.append(load_singer(name, paths, cache, key == "singer", held_out))
    return tuple(singer for singer in singers if len(singer.syllables) > 1)


def load_singer(
    name: str, files: Sequence[Path], cache: Path, sings: bool, held_out: bool = False
) -> Singer:
    """Load the recordings of one person. On first use, analyse them and write the results to
    ``cache``. Raises ValueError or OSError for a recording that cannot be read."""
    key = digest(bytes([CACHE_VERSION]), *(file.read_bytes() for file in files))
    path = cache / f"voice-{name.replace(' ', '_')}-{key}.npz"

    def analyse_all() -> dict[str, NDArray]:
        parts = [analyse(file) for file in files]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    stored = stored_arrays(path, analyse_all)
    f0 = stored["f0"]
    voiced = f0[f0 > 0]
    pitch = 69 + 12 * np.log2(np.median(voiced) / 440) if len(voiced) else 60.0
    envelope, aperiodicity = stored["envelope"], stored["aperiodicity"]
    runs = syllables(f0, stored["level_db"])
    return Singer(name, held_out, sings, envelope, aperiodicity, runs, float(pitch))


def analyse(file: Path) -> dict[str, NDArray]:
    """Analyse a recording. Return arrays with one row per frame: f0 in Hz (0 where unvoiced), level
    in dB, coded envelope and coded aperiodicity."""
    import pyworld  # its import prints a warning

    audio, rate = read_audio(file)
    samples = soxr.resample(np.asarray(audio, np.float64), rate, RATE)
    f0, times = pyworld.dio(samples, RATE, 70, 800, frame_period=1000 / FRAMES_S)
    f0 = pyworld.stonemask(samples, f0, times, RATE)
    envelope = pyworld.cheaptrick(samples, f0, times, RATE)
    aperiodicity = pyworld.d4c(samples, f0, times, RATE)
    coded = pyworld.code_spectral_envelope(envelope, RATE, COEFFICIENTS)
    return {
        "f0": f0.astype(np.float32),
        "level_db": (10 * np.log10(envelope.sum(axis=1) + 1e-12)).astype(np.float32),
        "envelope": coded.astype(np.float16),
        "aperiodicity": pyworld.code_aperiodicity(aperiodicity, RATE).astype(np.float16),
    }


def syllables(f0: F32, level_db: F32) -> tuple[Syllable, ...]:
    """Return the syllables of a recording, i.e. voiced runs with the consonants before them."""
    if not (f0 > 0).any():
        return ()
    loud = (f0 > 0) & (level_db > np.percentile(level_db[f0 > 0], 95) + QUIET_DB)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], loud, [False]]).astype(int)))
    runs: list[Syllable] = []
    free = 0  # first frame that does not belong to an earlier syllable
    for first, last in changes.reshape(-1, 2):
        for begin, end in _divided(level_db, int(first), int(last)):
            if end - begin >= SHORTEST:
                runs.append(_syllable(level_db, max(free, begin - CONSONANT), begin, end))
            free = end
    return tuple(runs)


def _divided(level_db: F32, begin: int, end: int) -> list[tuple[int, int]]:
    parts = []
    while end - begin > LONGEST:
        at = begin + LONGEST // 3 + int(np.argmin(level_db[begin + LONGEST // 3 : begin + LONGEST]))
        if level_db[at] > level_db[begin:end].max() + DIP_DB:
            break
        parts.append((begin, at))
        begin = at
    return [*parts, (begin, end)]


def _syllable(level_db: F32, begin: int, voiced: int, end: int) -> Syllable:
    run = level_db[voiced:end]
    top = float(run.max())
    core = np.flatnonzero(run > top + CORE_DB)
    return Syllable(begin, voiced, voiced + int(core[0]), voiced + int(core[-1]) + 1, end, top)
