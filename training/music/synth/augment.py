"""Rooms, microphones and recorders between an instrument and the samples.

No step moves the direct sound: labels stay aligned with the audio to within a millisecond.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from scipy import signal

from training.arrays import F32, F64, Rng
from training.music.synth import noise
from training.music.synth.config import RecordingConfig
from training.music.synth.surroundings import (
    Backgrounds,
    Room,
    load_backgrounds,
    load_rooms,
    measured_response,
)

TELEPHONE_HZ = (300.0, 3400.0)
MU = 255.0  # ITU-T G.711
MP3_DELAY = 576 + 529
"""Samples that an MP3 encoder and decoder put before a sound, if the file is too small to
say so (LAME leaves out its header below about 24 kbit/s); else the decoder removes them."""


def telephone(audio: F32, sample_rate: int) -> F32:
    """300 to 3400 Hz, in 8 bits of mu-law; same length."""
    band = signal.butter(3, TELEPHONE_HZ, "bandpass", fs=sample_rate, output="sos")
    narrow = np.clip(signal.sosfilt(band, audio), -1, 1)
    code = np.sign(narrow) * np.log1p(MU * np.abs(narrow)) / np.log1p(MU)
    code = np.rint(code * 127) / 127
    return np.asarray(np.sign(code) * np.expm1(np.abs(code) * np.log1p(MU)) / MU, np.float32)


SUPPRESSOR_S = 0.032  # length of the blocks in which a suppressor looks for noise
QUIET = 20  # percentile of a frequency's levels that is taken for noise


def suppressed(audio: F32, sample_rate: int, over_db: float, lowest_db: float) -> F32:
    """A spectral gate: frequencies less than ``over_db`` above their noise are turned down, to
    ``lowest_db`` at most; same length."""
    length = max(16, int(SUPPRESSOR_S * sample_rate))
    if len(audio) < 2 * length:
        return audio
    _, _, spectrum = signal.stft(audio, sample_rate, nperseg=length)
    level = np.abs(spectrum)
    noise_level = np.percentile(level, QUIET, axis=1, keepdims=True) * 10 ** (over_db / 20)
    gain = np.clip((level / np.maximum(noise_level, 1e-9)) ** 2, 10 ** (lowest_db / 20), 1)
    gain = signal.lfilter([0.5], [1, -0.5], gain, axis=1)  # as fast as a syllable
    _, out = signal.istft(spectrum * gain, sample_rate, nperseg=length)
    return np.asarray(np.pad(out, (0, length))[: len(audio)], np.float32)


def mp3(audio: F32, sample_rate: int, compression: float) -> F32:
    """Encoded and decoded; same length, without delay. compression: 0 (as many bits as the format
    has, 64 kbit/s at 11,025 Hz) to 0.9 (16 kbit/s)."""
    file = io.BytesIO()
    soundfile.write(
        file,
        audio,
        sample_rate,
        format="MP3",
        subtype="MPEG_LAYER_III",
        compression_level=compression,
        bitrate_mode="CONSTANT",
    )
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float32")
    delay = MP3_DELAY if len(decoded) != len(audio) else 0
    out = np.zeros_like(audio)
    kept = decoded[delay : delay + len(audio)]
    out[: len(kept)] = kept
    return out


TAPS, BANDS, LOWEST_HZ = 1025, 9, 40.0  # of the equaliser
IMPULSE_MIN_S = 0.1  # space for the ringing of the equaliser without reverberation
EVERYDAY = RecordingConfig()


@dataclass(frozen=True)
class Surroundings:
    """Measured rooms and recorded backgrounds; without them rooms and noise are synthesised."""

    rooms: tuple[Room, ...] = ()
    sounds: Backgrounds = Backgrounds((), 1)


NOWHERE = Surroundings()


def load_surroundings(folder: Path, sample_rate: int) -> Surroundings:
    """Those found in ``folder``. Raises ValueError if their rate differs."""
    return Surroundings(load_rooms(folder, sample_rate), load_backgrounds(folder, sample_rate))


def augment(
    audio: F32,
    sample_rate: int,
    rng: Rng,
    config: RecordingConfig = EVERYDAY,
    surroundings: Surroundings = NOWHERE,
) -> F32:
    """Room, equaliser, dynamics, level, noise, clipping and codecs; same length, float32."""
    response = impulse_response(sample_rate, rng, config, surroundings.rooms)
    out = np.asarray(signal.oaconvolve(audio, response)[: len(audio)], np.float32)
    if rng.random() < config.compressor:
        out = _compress(out, sample_rate, rng)
    peak = float(np.abs(out).max(initial=0))
    if peak > 0:
        out *= np.float32(1 / peak)
    if rng.random() < config.saturation:
        drive = np.float32(rng.uniform(0.5, 2.5))
        out = np.tanh(out * drive) / np.tanh(drive)
    lowest_db = config.quietest_db if rng.random() < config.quiet else -18.0
    level_db = rng.uniform(max(lowest_db, config.quietest_db), 0)
    out *= np.float32(10 ** (level_db / 20))
    out = _with_noise(out, sample_rate, rng, config, surroundings.sounds)
    if rng.random() < 0.1:  # a constant offset, as of cheap converters
        out += np.float32(rng.normal(0, 0.01) * 10 ** (level_db / 20))
    if rng.random() < config.clipping:
        out *= np.float32(rng.uniform(1.5, 4) * 10 ** (-level_db / 20))
    if rng.random() < 0.5:
        out = -out
    out = np.clip(out, -1, 1)
    if rng.random() < config.suppressor:
        out = suppressed(out, sample_rate, rng.uniform(3, 15), rng.uniform(-30, -8))
    if rng.random() < config.telephone:
        out = telephone(out, sample_rate)
    if rng.random() < config.mp3:
        out = mp3(out, sample_rate, float(rng.uniform(0, 0.9)))
    return np.clip(out, -1, 1)


def impulse_response(
    sample_rate: int, rng: Rng, config: RecordingConfig = EVERYDAY, rooms: tuple[Room, ...] = ()
) -> F32:
    """Direct sound (at sample 0), early reflections and diffuse tail, equalised at random. The
    reflections are measured (one of ``rooms``) or simulated. The equaliser's minimum-phase filter
    acts on the short response instead of the audio, at almost no cost."""
    in_room = rng.random() < config.room
    if in_room and rooms and rng.random() < config.measured:
        response = measured_response(rooms, sample_rate, rng)
        ringing = np.zeros(max(0, int(IMPULSE_MIN_S * sample_rate) - len(response)))
        response = np.concatenate([response, ringing])
    else:
        response = _made_up(in_room, sample_rate, rng)
    if rng.random() < config.equaliser:
        response = signal.oaconvolve(response, _equaliser(sample_rate, rng))[: len(response)]
    return response.astype(np.float32)


def _made_up(in_room: bool, sample_rate: int, rng: Rng) -> F64:
    """Direct sound, some early reflections and decaying noise; the direct sound alone outdoors."""
    rt60 = float(np.exp(rng.uniform(np.log(0.1), np.log(1.5)))) if in_room else 0.0
    length = int(sample_rate * max(IMPULSE_MIN_S, rt60))
    response = np.zeros(length)
    response[0] = 1.0
    if in_room:
        wet = 10 ** (float(rng.uniform(-25, 0)) / 20)
        time = np.arange(length) / sample_rate
        tail = rng.standard_normal(length) * np.exp(-6.91 * time / rt60)
        tail[: int(rng.uniform(0.003, 0.02) * sample_rate)] = 0
        # Walls and air absorb high frequencies: the tail is duller than the direct sound.
        dull = signal.butter(1, rng.uniform(0.15, 0.9), output="sos")
        tail = np.asarray(signal.sosfilt(dull, tail))
        response += tail * (wet / max(float(np.linalg.norm(tail)), 1e-9))
        early = (rng.uniform(0.002, 0.05, rng.integers(2, 8)) * sample_rate).astype(int)
        signs = rng.choice([-1, 1], len(early))
        levels = signs * rng.uniform(0.05, 0.6, len(early)) * wet
        response[np.minimum(early, length - 1)] += levels
    return response


def _equaliser(sample_rate: int, rng: Rng) -> F64:
    """A minimum-phase filter [TAPS / 2]: a tilt, peaks and dips an octave wide, sometimes the
    narrow band of a small microphone."""
    bands = np.geomspace(LOWEST_HZ, sample_rate / 2, BANDS)
    octave = np.log2(bands / bands[BANDS // 2])
    gain_db = rng.normal(0, 2.5, BANDS) + octave * rng.uniform(-3, 3)
    if rng.random() < 0.25:
        gain_db -= 12 * np.maximum(0, np.log2(rng.uniform(40, 200) / bands))
    if rng.random() < 0.2:
        gain_db -= 12 * np.maximum(0, np.log2(bands / rng.uniform(2000, 5000)))
    hz, gain = np.append(0, bands), 10 ** (np.append(gain_db[0], gain_db) / 20)
    # The square of the gain: half of the taps have its root (scipy.signal.minimum_phase).
    return np.asarray(
        signal.minimum_phase(signal.firwin2(TAPS, hz, gain**2, fs=sample_rate), n_fft=8192)
    )


def _compress(audio: F32, sample_rate: int, rng: Rng) -> F32:
    """Automatic gain that reduces loud passages; one filter sets attack and release."""
    block = 128
    padded = np.zeros(-(-len(audio) // block) * block, np.float32)
    padded[: len(audio)] = audio
    power = (padded.reshape(-1, block) ** 2).mean(axis=1)
    pole = np.exp(-block / (sample_rate * rng.uniform(0.02, 0.4)))
    envelope = np.sqrt(np.maximum(signal.lfilter([1 - pole], [1, -pole], power), 1e-12))
    threshold = float(envelope.max()) * 10 ** (rng.uniform(-25, -6) / 20)
    exponent = 1 / rng.uniform(1.3, 4) - 1
    gain = np.maximum(envelope / max(threshold, 1e-9), 1) ** exponent
    centres = (np.arange(len(gain)) + 0.5) * block
    return audio * np.interp(np.arange(len(audio)), centres, gain).astype(np.float32)


def _with_noise(
    audio: F32, sample_rate: int, rng: Rng, config: RecordingConfig, sounds: Backgrounds
) -> F32:
    rms = float(np.sqrt(np.mean(audio**2))) if len(audio) else 0.0
    length = len(audio)

    def add(sound: F32, lowest_db: float, highest_db: float) -> None:
        nonlocal audio
        level = rms * 10 ** (rng.uniform(lowest_db, highest_db) / 20)
        audio = audio + sound * np.float32(level / max(1e-9, float(np.std(sound))))

    if rng.random() < config.noise:
        lowest, highest = (-60, -25) if rng.random() < 0.7 else (-25, -10)
        if sounds.kinds and rng.random() < config.recorded:
            add(sounds.noise(length, rng), lowest, highest)
        else:
            colour = str(rng.choice(list(noise.COLOURS)))
            add(noise.coloured(length, colour, sample_rate, rng), lowest, highest)
    if rng.random() < config.hum:
        add(noise.hum(length, sample_rate, rng), -50, -15)
    if rng.random() < config.clicks:
        add(noise.clicks(length, sample_rate, rng), -35, -10)
    if rng.random() < config.drums:
        add(noise.percussion(length, sample_rate, rng, sounds), -15, 5)
    if rng.random() < config.voice:
        add(sounds.talk(length, rng), -20, 5)
    return audio
