"""Excerpts, audio with notes: scores performed by instruments in a room, or real recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import soxr

from training.arrays import F32, F64, Rng
from training.music.labelled import load_labelled, load_phrases, load_singing, singing_files
from training.music.notes import Notes, joined
from training.music.real import ScoredRecording, load_recordings
from training.music.synth import noise
from training.music.synth.augment import NOWHERE, Surroundings, augment, load_surroundings
from training.music.synth.bank import Bank, load_bank
from training.music.synth.casting import choose, ensemble_group
from training.music.synth.config import RecordingConfig, SynthConfig
from training.music.synth.dampers import held_by_pedal, invented_pedal, pedal_depths
from training.music.synth.mechanics import Mechanics, load_mechanics
from training.music.synth.perform import PITCH_HIGH, PITCH_LOW, orchestrate, perform, voice_for
from training.music.synth.render import Rendered, Voice, render, shorten_repeats
from training.music.synth.scores import Piece, load_pieces, random_notes
from training.music.synth.sing import line, random_habits, random_melody, sing, transposed
from training.music.synth.voices import Singer, load_singer, load_singers

SEMITONES = (-2, -1, 0, 0, 0, 1, 2)  # transpositions, which also change the tempo, as on tape
CENTS = 25.0  # largest additional detuning
SECOND_ROOM = 0.15
"""Room probability relative to rendered excerpts, as recordings already have a room."""


def recorded_excerpt(
    recordings: Sequence[ScoredRecording],
    seconds: float,
    sample_rate: int,
    config: RecordingConfig,
    rng: Rng,
    surroundings: Surroundings = NOWHERE,
) -> Rendered:
    """An augmented excerpt of one of the recordings, chosen in proportion to length. If a recording
    is shorter than ``seconds``, the excerpt is all of it."""
    lengths = np.array([len(recording.audio) for recording in recordings], float)
    recording = recordings[int(rng.choice(len(recordings), p=lengths / lengths.sum()))]
    semitones = int(rng.choice(SEMITONES))
    speed = 2 ** ((semitones + rng.uniform(-CENTS, CENTS) / 100) / 12)
    span = min(len(recording.audio), int(seconds * speed * sample_rate))
    begin = int(rng.integers(len(recording.audio) - span + 1))
    source, notes, doubts = recording.part(begin, span, speed, semitones)
    audio = soxr.resample(source, speed * sample_rate, sample_rate)
    lighter = replace(config, room=SECOND_ROOM * config.room)
    audio = augment(audio, sample_rate, rng, lighter, surroundings)
    return Rendered(audio, notes, unknown=doubts)


OVERLAY_DB = (-8.0, 4.0)
VOICE_DB = (-3.0, 9.0)  # level of a singer above the accompaniment
CHOIR = 0.15
"""Fraction of the singing without accompaniment for which several parts of a score are sung."""
CHOIR_PARTS = 4
SINGERS_WEIGHT = 4.0  # of recorded singing, against speech, which is recorded of more people
MADE_UP = 0.5  # fraction of the solo songs that are no scores
_ATTEMPTS = 20


@dataclass(frozen=True)
class Material:
    """The bank, the rooms and their sounds, and of one split the pieces, by group of ensembles, and
    the real recordings."""

    bank: Bank
    groups: dict[str, list[Piece]]
    weights: F64
    surroundings: Surroundings = NOWHERE
    mechanics: Mechanics | None = None  # noises of pianos, if the bank has them
    recordings: Mapping[str, list[ScoredRecording]] = field(default_factory=dict)
    """By group of ``SynthConfig.real_weights``."""
    singers: tuple[Singer, ...] = ()


def load_material(config: SynthConfig, split: str = "train") -> Material:
    """Opens bank and scores, and for training the real recordings. Raises ValueError if the split
    has no piece with notes, or ``real_root`` no recording with a score."""
    groups: dict[str, list[Piece]] = {}
    for piece in load_pieces(config.root, split):
        if len(piece.notes):
            groups.setdefault(ensemble_group(piece.ensemble, piece.collection), []).append(piece)
    if not groups:
        raise ValueError(f"{config.root} has no pieces of split {split!r}")
    weights = np.array([config.ensemble_weights.get(group, 0.0) for group in groups])
    if not weights.sum():
        raise ValueError(f"no group of {sorted(groups)} has a weight in ensemble_weights")
    bank = load_bank(config.root, config.cache)
    surroundings = load_surroundings(config.root, bank.sample_rate)
    mechanics = load_mechanics(config.root)
    recordings = {}
    if config.real_root is not None and split == "train":
        recordings = load_real(config)
        if not recordings:
            raise ValueError(f"{config.real_root} has no recordings with scores to train on")
    singers = load_singers(config.root / "voices", config.cache)
    of_split = tuple(one for one in singers if one.held_out == (split != "train"))
    if config.real_root is not None and split == "train":
        files = singing_files(config.real_root, split)
        of_split += (load_singer("labelled", files, config.cache, sings=True),) if files else ()
    return Material(
        bank, groups, weights / weights.sum(), surroundings, mechanics, recordings, of_split
    )


def load_real(config: SynthConfig) -> dict[str, list[ScoredRecording]]:
    """The recordings to train on, by group of ``config.real_weights``."""
    root, cache = config.real_root, config.cache
    assert root is not None
    labelled = load_labelled(root, cache, "train")
    groups = {
        "scores": load_recordings(root, cache, "train", config.real_left_out),
        "guitar": labelled.get("plucked", []),
        "voice": labelled.get("voice", []) + load_singing(config.root / "voices", cache),
        "phrases": load_phrases(config.root, cache),
    }
    return {name: some for name, some in groups.items() if some and config.real_weights.get(name)}


@dataclass(frozen=True)
class Take:
    """An excerpt in the making: of what, how long, how it is tuned."""

    material: Material
    config: SynthConfig
    rng: Rng
    seconds: float
    tuning_cents: float

    @property
    def rate(self) -> int:
        return self.material.bank.sample_rate

    def of_score(self, only: tuple[str, ...] | None = None, piece: Piece | None = None) -> Rendered:
        """A dry excerpt of ``piece``, or of a random one. ``only``: the instruments to use."""
        for _ in range(_ATTEMPTS):  # a long rest may leave an excerpt without notes
            chosen = piece or random_piece(self.material, self.rng)
            rendered = self._played(chosen, *self._performed(chosen), only)
            if len(rendered.notes):
                return rendered
        return rendered

    def of_random_notes(self) -> Rendered:
        """Random notes on one instrument, pianos preferred."""
        bank, config, rng = self.material.bank, self.config, self.rng
        entries = [e for e in bank.instruments.values() if e.name not in config.held_out]
        pianos = [e for e in entries if e.family == "piano"]
        entry = choose(pianos if pianos and rng.random() < 0.6 else entries, rng)
        low, high = max(PITCH_LOW, entry.low - 2), min(PITCH_HIGH, entry.high + 2)
        notes = random_notes(self.seconds, low, high, rng)
        voice = voice_for(entry, config, rng)
        pedal = np.zeros((0, 3))
        if voice.dampers and rng.random() < 0.3:
            pedal = pedal_depths(invented_pedal(notes, rng), rng)
            notes = held_by_pedal(notes, pedal)
        number = np.full(len(notes), entry.number, np.int8)
        return self._rendered(shorten_repeats(notes.moved(instrument=number)), [voice], pedal)

    def of_singing(self, accompanied: bool) -> Rendered:
        """A dry excerpt sung by one or more of the singers, with or without players."""
        rng = self.rng
        if not accompanied and rng.random() > CHOIR and rng.random() < MADE_UP:
            return self._sung(random_melody(self.seconds, rng), alone=True)
        piece = random_piece(self.material, rng)
        notes, pedal = self._performed(piece)
        if not accompanied and len(np.unique(notes.part)) > 1 and rng.random() < CHOIR:
            parts = rng.permutation(np.unique(notes.part))[:CHOIR_PARTS]
            choir, *others = [self._sung(line(notes.where(notes.part == part))) for part in parts]
            for other in others:
                choir = overlaid(choir, other, float(rng.uniform(-4, 4)))
            return choir
        melody = line(notes.where(notes.part == _leading(notes)) if len(notes) else notes)
        sung = self._sung(melody, alone=not accompanied)
        if not accompanied:
            return sung
        # What is sung is not played as well.
        places = set(zip(melody.onset, melody.pitch, strict=True))
        rest = [at not in places for at in zip(notes.onset, notes.pitch, strict=True)]
        band = self._played(piece, notes.where(np.array(rest, bool)), pedal)
        return overlaid(band, sung, float(rng.uniform(*VOICE_DB)))

    def _performed(self, piece: Piece) -> tuple[Notes, F64]:
        """A random passage of a piece and its pedal."""
        latest = max(0.0, piece.seconds - 0.7 * self.seconds)
        begins = piece.notes.onset[: max(1, np.searchsorted(piece.notes.onset, latest))]
        start_s = float(begins[self.rng.integers(len(begins))])
        return perform(piece, start_s, self.seconds, self.config, self.rng)

    def _played(
        self, piece: Piece, notes: Notes, pedal: F64, only: tuple[str, ...] | None = None
    ) -> Rendered:
        bank = self.material.bank
        return self._rendered(*orchestrate(bank, piece, notes, pedal, self.config, self.rng, only))

    def _rendered(self, notes: Notes, voices: list[Voice], pedal: F64 | None) -> Rendered:
        material = self.material
        return render(
            material.bank,
            notes,
            voices,
            self.seconds,
            self.tuning_cents,
            self.rng,
            pedal,
            material.mechanics,
        )

    def _sung(self, melody: Notes, alone: bool = False) -> Rendered:
        singers, rng = self.material.singers, self.rng
        weights = np.array([SINGERS_WEIGHT if one.sings else 1.0 for one in singers])
        singer = singers[int(rng.choice(len(weights), p=weights / weights.sum()))]
        melody, habits = transposed(melody, singer, rng), random_habits(rng, alone)
        return sing(melody, singer, habits, self.seconds, self.rate, self.tuning_cents, rng)


def training_excerpt(material: Material, config: SynthConfig, rng: Rng) -> Rendered:
    """One augmented excerpt: of a real recording, a score, random notes or noise."""
    rate = material.bank.sample_rate
    seconds = float(rng.uniform(config.excerpt_min_s, config.excerpt_max_s))
    if material.recordings and rng.random() < config.real_probability:
        names = list(material.recordings)
        weights = np.array([config.real_weights[name] for name in names])
        name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        return recorded_excerpt(
            material.recordings[name], seconds, rate, config.recording, rng, material.surroundings
        )
    kind = rng.random()
    if kind < config.background_probability:
        length = int(seconds * rate)
        sounds, share = material.surroundings.sounds, config.recording.recorded
        sound = noise.background(length, rate, config.background_kinds, rng, sounds, share)
        return Rendered(augmented(sound, material, config, rng), joined([]))
    take = Take(material, config, rng, seconds, random_tuning(config, rng))
    if kind < config.background_probability + config.random_probability:
        rendered = take.of_random_notes()
    elif material.singers and rng.random() < config.sung_probability:
        accompanied = rng.random() < config.accompanied
        rendered = take.of_singing(accompanied)
        if accompanied:
            config = replace(config, recording=produced(config.recording))
    else:
        rendered = take.of_score()
        if rng.random() < config.overlay_probability:
            rendered = overlaid(rendered, take.of_score(), float(rng.uniform(*OVERLAY_DB)))
    return replace(rendered, audio=augmented(rendered.audio, material, config, rng))


def augmented(audio: F32, material: Material, config: SynthConfig, rng: Rng) -> F32:
    """The audio in a random room, as it is recorded there."""
    rate = material.bank.sample_rate
    return augment(audio, rate, rng, config.recording, material.surroundings)


def overlaid(first: Rendered, second: Rendered, level_db: float) -> Rendered:
    """The mix of two equally long excerpts; the second is ``level_db`` louder on average."""
    loudness = [float(np.sqrt(np.mean(np.square(part.audio)))) for part in (first, second)]
    gain = loudness[0] / max(1e-9, loudness[1]) * 10 ** (level_db / 20) if loudness[0] else 1.0
    parts = int(first.notes.part.max(initial=-1)) + 1
    moved = second.notes.moved(part=(second.notes.part + parts).astype(np.int16))
    audio = first.audio + np.float32(gain) * second.audio
    pedals = [part.pedal for part in (first, second) if part.pedal is not None]
    pedal = np.concatenate(pedals) if pedals else None  # presses may overlap
    return Rendered(audio, joined([first.notes, moved]), pedal)


def produced(config: RecordingConfig) -> RecordingConfig:
    """How songs are mixed and passed on."""
    return replace(config, drums=0.5, compressor=0.6, saturation=0.25, mp3=0.25)


def _leading(notes: Notes) -> int:
    """The part that lies highest."""
    parts = np.unique(notes.part)
    return int(parts[np.argmax([notes.pitch[notes.part == part].mean() for part in parts])])


def random_piece(material: Material, rng: Rng) -> Piece:
    """A group drawn by its weight, a piece of it by the square root of its length."""
    names = list(material.groups)
    pieces = material.groups[names[int(rng.choice(len(names), p=material.weights))]]
    share = np.sqrt([piece.seconds for piece in pieces])
    return pieces[int(rng.choice(len(pieces), p=share / share.sum()))]


def random_tuning(config: SynthConfig, rng: Rng) -> float:
    """Concert pitch in cents: mostly within 10, sometimes anywhere in the allowed range."""
    if rng.random() < 0.75:
        return float(np.clip(rng.normal(0, 5), -10, 10))
    return float(rng.uniform(-config.tuning_max_cents, config.tuning_max_cents))
