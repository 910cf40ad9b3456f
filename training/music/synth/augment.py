"""Simulates rooms, microphones, noises and recorders.

No step delays the direct sound by more than about a millisecond, so labels and audio stay aligned.
"""

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
from scipy import signal

from model.config import SAMPLE_RATE
from training.arrays import F32, F64, Rng, draw
from training.music.recordings import read_audio
from training.music.synth import noise
from training.music.synth.bank import read_index

MU = 255.0  # ITU-T G.711
MP3_DELAY = 576 + 529
"""Number of samples that MP3 encoding and decoding insert before a sound. The decoder removes them
if the file has LAME's header. Files below about 24 kbit/s have no such header."""


def telephone(audio: F32) -> F32:
    """Limit ``audio`` to 300 to 3400 Hz and 8-bit mu-law samples. Its length is unchanged."""
    band = signal.butter(3, (300, 3400), "bandpass", fs=SAMPLE_RATE, output="sos")
    narrow = np.clip(signal.sosfilt(band, audio), -1, 1)
    code = np.sign(narrow) * np.log1p(MU * np.abs(narrow)) / np.log1p(MU)
    code = np.rint(code * 127) / 127
    return np.asarray(np.sign(code) * np.expm1(np.abs(code) * np.log1p(MU)) / MU, np.float32)


def suppress_noise(audio: F32, over_db: float, lowest_db: float) -> F32:
    """Apply a spectral gate, as phones and browsers do. The gate attenuates frequencies that are
    less than ``over_db`` above their noise, by at most ``-lowest_db``. The length is unchanged."""
    length = int(0.032 * SAMPLE_RATE)
    if len(audio) < 2 * length:
        return audio
    _, _, spectrum = signal.stft(audio, SAMPLE_RATE, nperseg=length)
    level = np.abs(spectrum)
    noise_level = np.percentile(level, 20, axis=1, keepdims=True) * 10 ** (over_db / 20)
    gain = np.clip((level / np.maximum(noise_level, 1e-9)) ** 2, 10 ** (lowest_db / 20), 1)
    gain = signal.lfilter([0.5], [1, -0.5], gain, axis=1)  # time constant 23 ms
    _, out = signal.istft(spectrum * gain, SAMPLE_RATE, nperseg=length)
    return np.asarray(np.pad(out, (0, length))[: len(audio)], np.float32)


def mp3(audio: F32, compression: float) -> F32:
    """Encode ``audio`` as MP3 and decode it, without delay or change of length. compression: from 0
    (64 kbit/s, the highest bit rate at 11,025 Hz) to 0.9 (16 kbit/s)."""
    file = io.BytesIO()
    settings = {"compression_level": compression, "bitrate_mode": "CONSTANT"}
    soundfile.write(file, audio, SAMPLE_RATE, "MPEG_LAYER_III", format="MP3", **settings)
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float32")
    delay = MP3_DELAY if len(decoded) != len(audio) else 0
    decoded = decoded[delay : delay + len(audio)]
    return np.pad(decoded, (0, len(audio) - len(decoded)))


@dataclass(frozen=True)
class Degradation:
    """Probability of each degradation of an excerpt."""

    room: float = 0.75  # early reflections and a diffuse tail, simulated (0.1 to 1.5 s) or measured
    equaliser: float = 1.0  # shelves, peaks and band edges of microphones and loudspeakers
    compressor: float = 0.2  # compression of loud passages
    saturation: float = 0.15  # soft clipping, as in tape recorders and valve amplifiers
    quiet: float = 0.35  # peak 0 to 40 dB below full scale, instead of 0 to 18 dB
    clipping: float = 0.05  # 3 to 12 dB over full scale
    noise: float = 0.9  # synthetic or recorded noise, 10 to 60 dB below the music
    hum: float = 0.12  # mains hum with overtones, 15 to 50 dB below the music
    clicks: float = 0.08  # clicks of old records, 10 to 35 dB below the music
    drums: float = 0.08  # a recorded drum kit, -15 to 5 dB relative to the music
    voice: float = 0.08  # recorded speech, -20 to 5 dB relative to the music
    telephone: float = 0.04  # see ``telephone``
    suppressor: float = 0.06  # see ``suppress_noise``
    mp3: float = 0.08  # MP3 at 16 to 64 kbit/s


PRODUCED = Degradation(drums=0.5, compressor=0.6, saturation=0.25, mp3=0.25)
"""Degradations of produced songs."""


@dataclass(frozen=True)
class Room:
    """Reflections of a room at one microphone, float32 [samples] from the direct sound on."""

    place: str
    kind: str
    t60_s: float
    reflections: F32


@dataclass(frozen=True)
class Surroundings:
    """Measured rooms and recorded backgrounds. Without them, rooms and noise are synthesised."""

    rooms: tuple[Room, ...] = ()
    sounds: noise.Backgrounds = noise.Backgrounds()


def augment(
    audio: F32,
    rng: Rng,
    surroundings: Surroundings = Surroundings(),
    config: Degradation = Degradation(),
) -> F32:
    """Return the audio, float32 of the same length, with a random room, equaliser, dynamics, level,
    noise, clipping and codec."""
    response = impulse_response(rng, config, surroundings.rooms)
    out = np.asarray(signal.oaconvolve(audio, response)[: len(audio)], np.float32)
    if rng.random() < config.compressor:
        out = _compress(out, rng)
    peak = float(np.abs(out).max(initial=0))
    if peak > 0:
        out *= np.float32(1 / peak)
    if rng.random() < config.saturation:
        drive = np.float32(rng.uniform(0.5, 2.5))
        out = np.tanh(out * drive) / np.tanh(drive)
    level_db = rng.uniform(-40.0 if rng.random() < config.quiet else -18.0, 0)
    out *= np.float32(10 ** (level_db / 20))
    out = _with_noise(out, rng, config, surroundings.sounds)
    if rng.random() < 0.1:  # a constant offset, as in cheap converters
        out += np.float32(rng.normal(0, 0.01) * 10 ** (level_db / 20))
    if rng.random() < config.clipping:
        out *= np.float32(rng.uniform(1.5, 4) * 10 ** (-level_db / 20))
    if rng.random() < 0.5:
        out = -out
    out = np.clip(out, -1, 1)
    if rng.random() < config.suppressor:
        out = suppress_noise(out, rng.uniform(3, 15), rng.uniform(-30, -8))
    if rng.random() < config.telephone:
        out = telephone(out)
    if rng.random() < config.mp3:
        out = mp3(out, float(rng.uniform(0, 0.9)))
    return np.clip(out, -1, 1)


def _compress(audio: F32, rng: Rng) -> F32:
    """Reduce the gain of loud passages. Attack and release have the same time constant."""
    block = 128
    padded = np.pad(audio, (0, -len(audio) % block))
    power = (padded.reshape(-1, block) ** 2).mean(axis=1)
    pole = np.exp(-block / (SAMPLE_RATE * rng.uniform(0.02, 0.4)))
    envelope = np.sqrt(np.maximum(signal.lfilter([1 - pole], [1, -pole], power), 1e-12))
    threshold = float(envelope.max()) * 10 ** (rng.uniform(-25, -6) / 20)
    exponent = 1 / rng.uniform(1.3, 4) - 1
    gain = np.maximum(envelope / max(threshold, 1e-9), 1) ** exponent
    centres = (np.arange(len(gain)) + 0.5) * block
    return audio * np.interp(np.arange(len(audio)), centres, gain).astype(np.float32)


def _with_noise(audio: F32, rng: Rng, config: Degradation, sounds: noise.Backgrounds) -> F32:
    rms = float(np.sqrt(np.mean(audio**2))) if len(audio) else 0.0
    length = len(audio)

    def add(sound: F32, lowest_db: float, highest_db: float) -> None:
        nonlocal audio
        level = rms * 10 ** (rng.uniform(lowest_db, highest_db) / 20)
        audio = audio + sound * np.float32(level / max(1e-9, float(np.std(sound))))

    if rng.random() < config.noise:
        lowest, highest = (-60, -25) if rng.random() < 0.7 else (-25, -10)
        if sounds.kinds and rng.random() < noise.RECORDED:
            add(sounds.noise(length, rng), lowest, highest)
        else:
            add(noise.coloured(length, str(rng.choice(list(noise.COLOURS))), rng), lowest, highest)
    if rng.random() < config.hum:
        add(noise.hum(length, rng), -50, -15)
    if rng.random() < config.clicks:
        add(noise.clicks(length, rng), -35, -10)
    if rng.random() < config.drums:
        add(sounds.drums(length, rng), -15, 5)
    if rng.random() < config.voice:
        add(sounds.talk(length, rng), -20, 5)
    return audio


TAPS, BANDS, LOWEST_HZ = 1025, 9, 40.0  # equaliser: filter length, bands, frequency of the lowest
MIN_RESPONSE = int(0.1 * SAMPLE_RATE)  # minimum length, so that the equaliser can ring


def impulse_response(
    rng: Rng, config: Degradation = Degradation(), rooms: tuple[Room, ...] = ()
) -> F32:
    """Return the impulse response of a random room and a random equaliser. The direct sound is at
    sample 0. The reflections are measured (one of ``rooms``) or simulated. The equaliser is applied
    to the response because this is much cheaper than applying it to the audio."""
    in_room = rng.random() < config.room
    if in_room and rooms and rng.random() < 0.5:
        response = _measured_room(rooms, rng)
        response = np.pad(response, (0, max(0, MIN_RESPONSE - len(response))))
    else:
        response = _simulated_room(in_room, rng)
    if rng.random() < config.equaliser:
        response = signal.oaconvolve(response, _equaliser(rng))[: len(response)]
    return response.astype(np.float32)


def _simulated_room(in_room: bool, rng: Rng) -> F64:
    """Return the direct sound and, in a room, some early reflections and decaying noise."""
    rt60 = float(np.exp(rng.uniform(np.log(0.1), np.log(1.5)))) if in_room else 0.0
    length = max(MIN_RESPONSE, int(SAMPLE_RATE * rt60))
    response = np.zeros(length)
    response[0] = 1.0
    if in_room:
        wet = 10 ** (float(rng.uniform(-25, 0)) / 20)
        time = np.arange(length) / SAMPLE_RATE
        tail = rng.standard_normal(length) * np.exp(-6.91 * time / rt60)
        tail[: int(rng.uniform(0.003, 0.02) * SAMPLE_RATE)] = 0
        # Walls and air absorb high frequencies, so the tail is duller than the direct sound.
        dull = signal.butter(1, rng.uniform(0.15, 0.9), output="sos")
        tail = np.asarray(signal.sosfilt(dull, tail))
        response += tail * (wet / max(float(np.linalg.norm(tail)), 1e-9))
        early = (rng.uniform(0.002, 0.05, rng.integers(2, 8)) * SAMPLE_RATE).astype(int)
        signs = rng.choice([-1, 1], len(early))
        levels = signs * rng.uniform(0.05, 0.6, len(early)) * wet
        response[np.minimum(early, length - 1)] += levels
    return response


def _equaliser(rng: Rng) -> F64:
    """Return a minimum-phase filter, [(TAPS + 1) / 2], with a tilt, peaks and dips an octave wide,
    and sometimes the narrow band of a small microphone or loudspeaker."""
    bands = np.geomspace(LOWEST_HZ, SAMPLE_RATE / 2, BANDS)
    octave = np.log2(bands / bands[BANDS // 2])
    gain_db = rng.normal(0, 2.5, BANDS) + octave * rng.uniform(-3, 3)
    if rng.random() < 0.25:
        gain_db -= 12 * np.maximum(0, np.log2(rng.uniform(40, 200) / bands))
    if rng.random() < 0.2:
        gain_db -= 12 * np.maximum(0, np.log2(bands / rng.uniform(2000, 5000)))
    hz, gain = np.append(0, bands), 10 ** (np.append(gain_db[0], gain_db) / 20)
    # The gain is squared because minimum_phase returns a filter with the square root of the gain.
    taps = signal.firwin2(TAPS, hz, gain**2, fs=SAMPLE_RATE)
    return np.asarray(signal.minimum_phase(taps, n_fft=8192))


LONGEST_S = 2.5  # maximum length of a response; caves and cathedrals are truncated
_WEIGHTS = {"plate": 0.4, "mausoleum": 0.1, "tunnel": 0.5}  # by kind of room; 1 for others


@lru_cache(maxsize=4)
def load_rooms(folder: Path) -> tuple[Room, ...]:
    """Load the rooms of ``rooms.json``, except the responses of piano bodies. Return none if the
    file is missing. Raises ValueError if the sample rate is not SAMPLE_RATE."""
    if not (folder / "rooms.json").exists():
        return ()
    rooms = []
    for entry in read_index(folder / "rooms.json")["rooms"]:
        if entry["kind"] == "piano body":
            continue
        response, _ = read_audio(folder / entry["file"])
        reflections = response[entry["direct_sample"] :][: int(LONGEST_S * SAMPLE_RATE)].copy()
        reflections[: int(0.0025 * SAMPLE_RATE)] = 0  # an impulse will replace the direct sound
        fade = min(len(reflections), int(0.25 * SAMPLE_RATE))
        reflections[-fade:] *= np.linspace(1, 0, fade, dtype=np.float32)
        place = entry["name"].split("_")[0]
        rooms.append(Room(place, entry["kind"], float(entry["t60_s"]), reflections))
    return tuple(rooms)


def _measured_room(rooms: tuple[Room, ...], rng: Rng) -> F64:
    """Return an impulse response of one of ``rooms``. The direct sound is sample 0, which is 1. The
    level, delay and decay of the reflections are random. Sometimes a second microphone in the same
    room is mixed in."""
    room = draw(rooms, [_WEIGHTS.get(room.kind, 1.0) for room in rooms], rng)
    response = _response(room, rng)
    if rng.random() < 0.3:
        others = [other for other in rooms if other.place == room.place]
        second = _response(others[rng.integers(len(others))], rng)
        late = int(rng.integers(int(0.002 * SAMPLE_RATE) + 1))  # up to 2 ms
        both = np.pad(response, (0, max(0, late + len(second) - len(response))))
        both[late : late + len(second)] += rng.uniform(0.3, 1.0) * second
        response = both / both[0]
    return response


def _response(room: Room, rng: Rng) -> F64:
    time = np.arange(len(room.reflections)) / SAMPLE_RATE
    # Curtains and an audience shorten the decay, here by at most half.
    extra_decay = 1 / rng.uniform(0.5, 1.0) - 1
    reflections = room.reflections * np.exp(-6.91 * extra_decay / room.t60_s * time)
    # Distances range from a fifth to twice the critical distance, at which direct sound and
    # reflections are equally loud (H. Kuttruff, Room Acoustics, section 5.5).
    ratio_db = rng.uniform(-6, 14)
    level = 10 ** (-ratio_db / 20) / max(1e-9, float(np.linalg.norm(reflections)))
    late = int(rng.uniform(0, 0.02) * SAMPLE_RATE) if rng.random() < 0.5 else 0  # distant walls
    response = np.concatenate([np.zeros(late), level * reflections])
    response[0] = 1.0
    return response
