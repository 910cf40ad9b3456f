"""Synthesised backgrounds: coloured noise, hum, clicks, drums, whispers, speech, sweeps."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy import fft, signal

from training.arrays import F32, F64, Rng
from training.music.synth.acoustics.surroundings import Backgrounds

# Three formants (Hz) of vowels of an adult male voice (Peterson and Barney, 1952); other voices
# scale them.
_VOWELS = np.array(
    [
        [270, 2290, 3010],
        [390, 1990, 2550],
        [530, 1840, 2480],
        [660, 1720, 2410],
        [730, 1090, 2440],
        [570, 840, 2410],
        [440, 1020, 2240],
        [300, 870, 2240],
        [640, 1190, 2390],
        [490, 1350, 1690],
    ]
)
_BANDWIDTHS = np.array([80.0, 110.0, 170.0])  # Hz
_FALL_HZ = 100.0  # above it the source falls by 6 dB an octave, the lips' radiation included


def speech(length: int, sample_rate: int, rng: Rng) -> F32:
    """One voice, talking with pauses; peak 1, float32 [length].

    A source-filter synthesiser (G. Fant, Acoustic Theory of Speech Production): pulses of
    constantly changing pitch pass through the resonances of one vowel after another, with hisses
    between them as consonants.
    """
    syllables = _syllables(length / sample_rate, rng)
    tract = float(rng.uniform(0.95, 1.35))  # shorter vocal tracts resonate higher
    base_hz = float(np.exp(rng.uniform(np.log(80), np.log(280))))
    source = _glottal(length, sample_rate, base_hz, rng)
    hiss = rng.standard_normal(length).astype(np.float32)
    breath = np.float32(rng.uniform(0.005, 0.05))
    out = np.zeros(length, np.float32)
    for begin_s, end_s in syllables:
        begin, end = int(begin_s * sample_rate), min(length, int(end_s * sample_rate))
        if end - begin < 16:
            continue
        shape = signal.windows.tukey(end - begin, 0.6).astype(np.float32)
        vowel = (source[begin:end] + breath * hiss[begin:end]) * shape
        formants = tract * _VOWELS[rng.integers(len(_VOWELS))] * rng.uniform(0.92, 1.08, 3)
        loud = np.float32(rng.lognormal(0, 0.4))
        out[begin:end] += loud * _resonate(vowel, formants, sample_rate)
        if rng.random() < 0.45:
            _consonant(out, begin, hiss, loud, sample_rate, rng)
    peak = float(np.abs(out).max(initial=0))
    return out / np.float32(peak) if peak > 0 else out


def _syllables(seconds: float, rng: Rng) -> F64:
    """Begin and end of each syllable, [n, 2]; phrases of some syllables, then a breath."""
    times, now = [], float(rng.uniform(0, 0.5))
    pace = float(rng.uniform(0.12, 0.26))
    while now < seconds:
        for _ in range(rng.integers(3, 15)):
            span = pace * rng.lognormal(0, 0.3)
            times.append((now, now + 1.25 * span))  # neighbours overlap: formants glide
            now += span
        now += rng.uniform(0.15, 0.9)
    return np.array(times)


def _glottal(length: int, sample_rate: int, base_hz: float, rng: Rng) -> F32:
    """Pulses with the wandering pitch of speech, lowpassed; peak about 1."""
    knots = np.arange(0, length + sample_rate, 0.11 * sample_rate)
    bend = rng.normal(0, rng.uniform(1, 3), len(knots))  # semitones from syllable to syllable
    phrase = 2.5 * np.cos(2 * np.pi * np.arange(len(knots)) / rng.uniform(12, 30))
    pitch = base_hz * 2 ** (np.interp(np.arange(length), knots, bend + phrase) / 12)
    phase = np.cumsum(pitch / sample_rate)
    beats = np.flatnonzero(np.diff(np.floor(phase)) > 0) + 1
    late = np.clip((phase[beats] % 1) * sample_rate / pitch[beats], 0, 1)  # samples since the beat
    pulses = np.zeros(length + 1, np.float32)
    force = rng.normal(1, 0.05, len(beats))
    pulses[beats] += (1 - late) * force
    pulses[beats - 1] += late * force
    fall = np.exp(-2 * np.pi * _FALL_HZ / sample_rate)
    out: F32 = signal.lfilter([1 - fall], [1, -fall], pulses[:length])
    return (out / np.float32(max(1e-9, np.abs(out).max()))).astype(np.float32)


def _resonate(sound: F32, formants: F64, sample_rate: int) -> F32:
    """The formants' two-pole resonators in cascade."""
    radius = np.exp(-np.pi * _BANDWIDTHS / sample_rate)
    angle = 2 * np.pi * np.minimum(formants, 0.45 * sample_rate) / sample_rate
    sections = np.zeros((len(formants), 6))
    sections[:, 3] = 1
    sections[:, 4] = -2 * radius * np.cos(angle)
    sections[:, 5] = radius**2
    sections[:, 0] = sections[:, 3:].sum(axis=1)  # gain 1 at 0 Hz
    return np.asarray(signal.sosfilt(sections, sound), np.float32)


def _consonant(
    out: F32, begin: int, hiss: F32, loud: np.float32, sample_rate: int, rng: Rng
) -> None:
    """A hiss of 30 to 120 ms before a vowel, added to ``out``."""
    first = max(0, begin - int(rng.uniform(0.03, 0.12) * sample_rate))
    if begin - first < 16:
        return
    low = float(rng.uniform(0.2, 0.6))  # of the Nyquist frequency
    band = signal.butter(1, [low, 0.95], "bandpass", output="sos")
    sound = hiss[first:begin] * signal.windows.hann(begin - first)
    out[first:begin] += loud * np.float32(rng.uniform(0.02, 0.3)) * signal.sosfilt(band, sound)


TABLE_S = 47.0  # length of the noise tables that excerpts take random slices from
COLOURS = {"white": 0.0, "pink": 0.5, "brown": 1.0}
"""Noise colours: amplitude falls with frequency to this power."""

CLICKS_PER_S, BURSTS_PER_S = 1.0, 2.5


@lru_cache(maxsize=8)
def _table(colour: str, sample_rate: int) -> F32:
    """Unit-variance noise, equal in every process; generating it each time would be slow."""
    size = fft.next_fast_len(int(TABLE_S * sample_rate))
    rng = np.random.default_rng(sorted(COLOURS).index(colour))
    spectrum = fft.rfft(rng.standard_normal(size))
    frequency = np.maximum(np.arange(len(spectrum)) * sample_rate / size, 15.0)
    noise = fft.irfft(spectrum * frequency ** -COLOURS[colour], size)
    noise -= noise.mean()
    return np.asarray(noise / noise.std(), np.float32)


def coloured(length: int, colour: str, sample_rate: int, rng: Rng) -> F32:
    """Unit-variance noise of a colour, float32 [length]."""
    table = _table(colour, sample_rate)
    begin = int(rng.integers(len(table)))
    return np.take(table, np.arange(begin, begin + length), mode="wrap")


def hum(length: int, sample_rate: int, rng: Rng) -> F32:
    """Mains hum: 50 or 60 Hz and harmonics, near unit variance."""
    time = np.arange(length, dtype=np.float32) / np.float32(sample_rate)
    base = float(rng.choice([50.0, 60.0])) + rng.normal(0, 0.05)
    out = np.zeros(length, np.float32)
    for harmonic in range(1, 6):
        level = rng.uniform(0, 1) / harmonic
        out += np.float32(level) * np.sin(
            np.float32(2 * np.pi * base * harmonic) * time + np.float32(rng.uniform(0, 6.28))
        )
    return out


def clicks(length: int, sample_rate: int, rng: Rng) -> F32:
    """Single loud samples and short bursts, as of switches, keys and bad contacts."""
    out = np.zeros(length, np.float32)
    count = rng.poisson(CLICKS_PER_S * length / sample_rate)
    for at in rng.integers(0, length, count):
        size = min(int(rng.integers(1, 40)), length - int(at))
        burst = rng.standard_normal(size) * np.exp(-np.arange(size) / rng.uniform(1, 12))
        out[at : at + size] += (burst * rng.lognormal(0, 0.7)).astype(np.float32)
    return out


def bursts(length: int, sample_rate: int, rng: Rng) -> F32:
    """Drum-like decaying noise, band-limited at random."""
    out = np.zeros(length, np.float32)
    edge = np.exp(rng.uniform(np.log(150), np.log(0.4 * sample_rate), 2))
    high = float(edge.max())  # below the Nyquist frequency
    low = min(float(edge.min()), high / 1.5)
    band = signal.butter(1, [low, high], "bandpass", fs=sample_rate, output="sos")
    for at in rng.integers(0, length, rng.poisson(BURSTS_PER_S * length / sample_rate)):
        size = min(int(rng.uniform(0.03, 0.5) * sample_rate), length - int(at))
        shape = np.exp(-np.arange(size) / (sample_rate * rng.uniform(0.005, 0.12)))
        out[at : at + size] += (rng.standard_normal(size) * shape).astype(np.float32)
    return np.asarray(signal.sosfilt(band, out), np.float32)


def drums(length: int, sample_rate: int, rng: Rng) -> F32:
    """A kit that plays a beat: bass drum, tom and snare fall in pitch, the hi-hat hisses."""
    out = np.zeros(length, np.float32)
    step = int(sample_rate * rng.uniform(0.1, 0.28))  # between two places of the pattern
    kit = [
        _drum(sample_rate, rng.uniform(90, 160), rng.uniform(40, 60), 0.12, 0.05, rng),
        _drum(sample_rate, rng.uniform(120, 260), rng.uniform(70, 140), 0.15, 0.1, rng),
        _drum(sample_rate, rng.uniform(220, 300), rng.uniform(150, 200), 0.06, 1.5, rng),
        _drum(sample_rate, 0, 0, rng.uniform(0.01, 0.08), 1.0, rng),
    ]
    pattern = rng.random((len(kit), 16)) < np.array([[0.3], [0.1], [0.2], [0.7]])
    for place, begin in enumerate(range(int(rng.integers(step)), length, step)):
        for sound, beats in zip(kit, pattern, strict=True):
            if beats[place % 16]:
                at = begin + int(rng.integers(max(1, step // 20)))
                n = max(0, min(len(sound), length - at))
                out[at : at + n] += sound[:n] * np.float32(rng.uniform(0.3, 1))
    return out


def _drum(
    sample_rate: int, from_hz: float, to_hz: float, decay_s: float, rattle: float, rng: Rng
) -> F32:
    """One stroke: a sine that falls in pitch (0: none) and ``rattle`` times as much noise."""
    time = np.arange(int(6 * decay_s * sample_rate)) / sample_rate
    phase = to_hz * time + (from_hz - to_hz) * 0.03 * (1 - np.exp(-time / 0.03))
    hiss = np.diff(rng.standard_normal(len(time) + 1))  # rises by 6 dB an octave
    out = np.sin(2 * np.pi * phase) * np.exp(-time / decay_s)
    return (out + rattle * 0.3 * hiss * np.exp(-time / (0.7 * decay_s))).astype(np.float32)


def percussion(length: int, sample_rate: int, rng: Rng) -> F32:
    """Drums in a beat or single bursts, equally often."""
    make = drums if rng.random() < 0.5 else bursts
    return make(length, sample_rate, rng)


def sweep(length: int, sample_rate: int, rng: Rng) -> F32:
    """Sines that glide up and down, as in sirens and test signals; peak 1."""
    octaves = rng.uniform(0.15, 1.5)  # per second, faster than any pitch bend
    turns = np.arange(length) / sample_rate * octaves / 6
    height = 6 * np.abs(2 * ((turns + rng.random()) % 1) - 1)  # octaves above 60 Hz, up and down
    return np.sin(2 * np.pi * np.cumsum(60 * 2**height / sample_rate)).astype(np.float32)


def murmur(length: int, sample_rate: int, rng: Rng) -> F32:
    """Whispers: formant-shaped noise at the pace of syllables."""
    source = coloured(length, "pink", sample_rate, rng)
    out = np.zeros(length, np.float32)
    for low, high in ((200, 800), (800, 1800), (1800, 3500)):
        centre = rng.uniform(low, high)
        band = signal.butter(
            1, [0.8 * centre, 1.25 * centre], "bandpass", fs=sample_rate, output="sos"
        )
        knots = np.arange(0, length + sample_rate, max(1, int(sample_rate / rng.uniform(3, 9))))
        level = rng.uniform(0, 1, len(knots)) ** 2 * (rng.random(len(knots)) < 0.75)
        gain = np.interp(np.arange(length), knots, level).astype(np.float32)
        out += np.asarray(signal.sosfilt(band, source), np.float32) * gain
    return out


def background(
    length: int,
    sample_rate: int,
    kinds: Mapping[str, float],
    rng: Rng,
    sounds: Backgrounds | None = None,
    recorded: float = 0.0,
) -> F32:
    """A whole excerpt without notes, peak 1 or digital silence; float32 [length].

    kinds: relative frequencies (``SynthConfig.background_kinds``); recorded: the share of noise,
    percussion and speech that comes from ``sounds``, if there are any.
    """
    from_life = sounds if sounds and rng.random() < recorded else None
    shares = np.array(list(kinds.values()))
    kind = str(rng.choice(list(kinds), p=shares / shares.sum()))
    out = np.zeros(length, np.float32)
    if kind in ("noise", "mixture"):
        if from_life:
            out += from_life.noise(length, rng)
        if not from_life or kind == "mixture":
            colour = str(rng.choice(list(COLOURS)))
            out += np.float32(rng.uniform(0.02, 1)) * coloured(length, colour, sample_rate, rng)
    if kind in ("hum", "mixture"):
        out += np.float32(rng.uniform(0.2, 1)) * hum(length, sample_rate, rng)
    if kind in ("murmur", "mixture"):
        out += np.float32(rng.uniform(0.5, 5)) * murmur(length, sample_rate, rng)
    if kind in ("percussion", "mixture") and from_life:
        out += from_life.drums(length, rng)
    elif kind in ("percussion", "mixture"):
        out += percussion(length, sample_rate, rng) + clicks(length, sample_rate, rng)
    if kind == "sweep":
        out += sweep(length, sample_rate, rng)
    if kind in ("talk", "conversation"):
        for _ in range(1 if kind == "talk" else rng.integers(2, 5)):
            level = np.float32(rng.uniform(0.3, 1))
            voice = from_life.talk(length, rng) if from_life else speech(length, sample_rate, rng)
            out += level * voice
    peak = float(np.abs(out).max(initial=0))
    return out / np.float32(peak) if peak > 0 else out
