"""Settings of the synthesised training data."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from model.ranges import Count, Fraction, FromZero, Positive, checked
from training.music.synth.bank import HELD_OUT

CACHE = Path("~/.cache/rse-transcribe").expanduser()


@checked()
class RecordingConfig:
    """Degradation of a sound on its way to the file. Probabilities per excerpt."""

    room: Fraction = 0.75
    """A room: early reflections and a diffuse tail, simulated (0.1 to 1.5 s) or measured."""
    measured: Fraction = 0.5  # Fraction of the rooms that are measured, if any exist
    recorded: Fraction = 0.7  # Fraction of the noise that is recorded, if any exists
    equaliser: Fraction = 1.0
    """Random shelves, peaks and band edges of microphones and loudspeakers."""
    compressor: Fraction = 0.2  # Compression of loud passages
    saturation: Fraction = 0.15  # Soft clipping, as by tape and tubes
    quietest_db: float = -40.0
    """Peak level of the quietest excerpts, below full scale; the loudest reach it."""
    quiet: Fraction = 0.35  # Levels uniform over the whole range; others are in its upper 18 dB
    clipping: Fraction = 0.05  # Driven 3 to 12 dB over full scale
    noise: Fraction = 0.9  # Steady noise, 10 to 60 dB below the music
    hum: Fraction = 0.12  # Mains hum with overtones, 15 to 50 dB below the music
    clicks: Fraction = 0.08  # Clicks as of old records, 10 to 35 dB below the music
    drums: Fraction = 0.08
    """A recorded drum kit, or bursts of noise without one, -15 to 5 dB relative to the music."""
    voice: Fraction = 0.08  # Recorded speech, -20 to 5 dB relative to the music
    telephone: Fraction = 0.04  # 300 to 3400 Hz in 8 bits of mu-law
    suppressor: Fraction = 0.06  # Noise suppression of phones and browsers
    mp3: Fraction = 0.08  # MP3 coding at 16 to 64 kbit/s


@checked()
class SynthConfig:
    """The data and how excerpts are made from it. Probabilities are per excerpt."""

    root: Path  # Folder of data in the layout of ``training.music.synth``
    cache: Path  # Folder for the decoded bank (up to a gigabyte) and aligned recordings
    held_out: tuple[str, ...] = HELD_OUT  # Entries of the bank used only for validation
    seed: int = 0  # Random seed, unless the caller gives one

    real_root: Path | None = None
    """Folder of real recordings with their scores (training.music.real); None for none."""
    real_probability: Fraction = 0.25  # Excerpts of those recordings, if `real_root` is given
    real_weights: dict[str, float] = field(
        default_factory=lambda: {"scores": 0.4, "guitar": 0.25, "voice": 0.25, "phrases": 0.1}
    )
    """Relative frequency of recordings with scores, of guitars and voices with labels, and of
    phrases of which only the instrument is known."""
    real_left_out: tuple[str, ...] = (
        "chopin_op10_12",
        "joplin_maple_leaf",
        "wtc1_bwv847_prelude",
    )
    """Recordings that are not used, by ID: their scores do not fit."""

    excerpt_min_s: Annotated[float, Field(ge=1)] = 20.0  # seconds of the shortest excerpt
    excerpt_max_s: float = 30.0  # Seconds of the longest
    seconds_per_window: Positive = 0.35
    """One window is cut from an excerpt per this much of its duration."""
    pool_excerpts: Count = 32  # Excerpts from which a worker draws windows (about 2 MB each)
    queue_batches: Count = 4  # Finished batches that may wait in each worker's queue

    random_probability: Fraction = 0.12
    """Random chords, scales, arpeggios, repetitions and clusters instead of a score."""
    background_probability: Fraction = 0.12  # Noise, hum, speech, drums and clicks without notes
    background_kinds: dict[str, float] = field(
        default_factory=lambda: {
            "silence": 0.05,
            "noise": 0.20,
            "hum": 0.06,
            "percussion": 0.18,
            "mixture": 0.10,
            "sweep": 0.03,
            "talk": 0.24,
            "conversation": 0.08,
        }
    )
    """Relative frequency of each kind of excerpt without notes."""
    sung_probability: Fraction = 0.2  # Scores of which a part is sung, if there are voices
    accompanied: Fraction = 0.5  # Of these, songs with players; others are sung alone
    overlay_probability: Fraction = 0.15
    """A second excerpt of another score at the same time, for larger ensembles."""
    vibrato_probability: Fraction = 0.7  # Bowed voices with vibrato; for others 0.4 times as many
    edge_probability: Fraction = 0.04
    """Per window: silence before or after a random sample, as where a stream starts or ends."""
    piano_probability: Fraction = 0.42
    """Ensemble scores given to a piano; others keep their instruments or get new ones."""
    string_solo_piano_probability: Fraction = 0.35
    """The same for solo strings, which are rarely recorded otherwise."""
    reorchestrate_probability: Fraction = 0.5
    """Scores that stay with ensembles but get other instruments: strings, winds, any, or one that
    plays all the parts, such as a guitar or an organ."""
    ensemble_weights: dict[str, float] = field(
        default_factory=lambda: {
            "solo piano": 0.13,
            "pop piano": 0.20,
            "songs": 0.17,
            "quartets": 0.14,
            "solo strings": 0.13,
            "solo winds": 0.06,
            "chamber": 0.09,
            "orchestra": 0.08,
        }
    )
    """Relative frequency of scores of each group of ensembles."""

    tempo_min: float = 0.7  # Slowest tempo, relative to the written one
    tempo_max: float = 1.4  # Fastest
    pedal_cap_s: float = 8.0
    """Longer pedal presses are split by a change; 1 in 100 human presses is this long."""
    context: FromZero = 0  # Samples before each window that come with it (``ModelConfig.context``)
    tuning_max_cents: float = 30.0  # Farthest concert pitch from 440 Hz, in cents
    recording: RecordingConfig = field(default_factory=RecordingConfig)

    def __post_init__(self) -> None:
        if self.random_probability + self.background_probability > 1:
            raise ValueError("random_probability and background_probability add up to over 1")
        if self.excerpt_min_s > self.excerpt_max_s:
            raise ValueError(f"excerpt_min_s {self.excerpt_min_s} is above excerpt_max_s")
