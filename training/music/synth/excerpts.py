"""Builds training excerpts, i.e. audio with its notes, from scores and real recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import soxr

from model.config import SAMPLE_RATE
from training.arrays import F64, Rng, draw
from training.music import real
from training.music.notes import Notes, joined
from training.music.synth import pianos
from training.music.synth.augment import PRODUCED, Degradation, Surroundings, augment, load_rooms
from training.music.synth.bank import HELD_OUT, Bank, Instrument, load_bank
from training.music.synth.config import SynthConfig
from training.music.synth.harmonica import REEDS, harmonica_part, played_by_hands
from training.music.synth.lines import Line
from training.music.synth.noise import load_backgrounds, random_background
from training.music.synth.perform import orchestrate, perform, sample_instrument, voice_for
from training.music.synth.render import Rendered, Voice, render, shorten_repeats
from training.music.synth.scores import Piece, load_pieces, random_notes
from training.music.synth.sing import Habits, line, random_melody, shift_to_range, sing
from training.music.synth.voices import Singer, load_singer, load_singers

ENSEMBLES = {
    "solo piano": 0.13,
    "pop piano": 0.20,
    "songs": 0.17,
    "quartets": 0.14,
    "solo strings": 0.13,
    "solo winds": 0.06,
    "chamber": 0.09,
    "orchestra": 0.08,
}
"""Relative frequency with which scores of each group (``Piece.group``) are used."""
REAL = {"scores": 0.4, "guitar": 0.25, "voice": 0.25, "phrases": 0.1}
"""Relative frequency with which each kind of real recording is used: recordings with scores,
labelled guitars, labelled voices, and phrases with labels for the instrument only."""


@dataclass(frozen=True)
class TrainingSources:
    """All data from which the excerpts of one split are built."""

    bank: Bank
    groups: dict[str, list[Piece]]  # by ``Piece.group``
    surroundings: Surroundings = Surroundings()
    mechanics: pianos.Mechanics | None = None  # noises of a piano, if the bank has any
    recordings: Mapping[str, list[real.RealRecording]] = field(default_factory=dict)
    """Real recordings, by key of REAL."""
    singers: tuple[Singer, ...] = ()


def load_sources(config: SynthConfig, split: str = "train") -> TrainingSources:
    """Load the bank, the scores and singers of a split, and real recordings for the split "train".
    Raises ValueError or OSError for unreadable data, and ValueError if the split has no scores, or
    if ``config.real_root`` is set but there are no real recordings."""
    groups: dict[str, list[Piece]] = {}
    for piece in load_pieces(config.root, split):
        groups.setdefault(piece.group, []).append(piece)
    if not groups:
        raise ValueError(f"{config.root} has no pieces of split {split!r}")
    bank, voices = load_bank(config.root, config.cache), config.root / "voices"
    surroundings = Surroundings(load_rooms(config.root), load_backgrounds(config.root))
    singers = load_singers(voices, config.cache)
    singers = tuple(singer for singer in singers if singer.held_out == (split != "train"))
    recordings: dict[str, list[real.RealRecording]] = {}
    if config.real_root is not None and split == "train":
        source = config.real_root, config.cache, split
        labelled = real.load_labelled(*source)
        recordings = {
            "scores": real.load_scored(*source),
            "guitar": labelled.get("plucked", []),
            "voice": labelled.get("voice", []) + real.load_singing(voices, config.cache),
            "phrases": real.load_phrases(config.root, config.cache),
        }
        recordings = {name: of_kind for name, of_kind in recordings.items() if of_kind}
        if not recordings:
            raise ValueError(f"{config.real_root} has no recordings with labels to train on")
        if files := real.singing_files(config.real_root, split):
            singers += (load_singer("labelled", files, config.cache, sings=True),)
    mechanics = pianos.load_mechanics(config.root)
    return TrainingSources(bank, groups, surroundings, mechanics, recordings, singers)


def random_piece(groups: Mapping[str, list[Piece]], rng: Rng) -> Piece:
    """Draw a group with its weight in ENSEMBLES, then one of its pieces. Within a group, a piece's
    probability is proportional to the square root of its length."""
    pieces = draw(list(groups.values()), [ENSEMBLES[name] for name in groups], rng)
    return draw(pieces, np.sqrt([piece.seconds for piece in pieces]), rng)


CHOIR = 0.15  # probability that several parts of a score are sung, if there is no accompaniment


class ExcerptBuilder:
    """Renders excerpts of one length in one random tuning, without room and noise."""

    def __init__(self, sources: TrainingSources, rng: Rng, seconds: float) -> None:
        self.sources, self.rng, self.seconds = sources, rng, seconds
        is_tuned = rng.random() < 0.75
        cents = np.clip(rng.normal(0, 5), -10, 10) if is_tuned else rng.uniform(-30, 30)
        self.tuning_cents = float(cents)

    def render_score(
        self, only: tuple[str, ...] | None = None, piece: Piece | None = None
    ) -> Rendered:
        """Render ``piece`` or a random piece. only: see ``orchestrate``."""
        for _ in range(20):  # try again if a long rest leaves an excerpt without notes
            chosen = piece or random_piece(self.sources.groups, self.rng)
            rendered = self._play(chosen, *self._perform(chosen), only)
            if len(rendered.notes):
                break
        return rendered

    def render_random_notes(self) -> Rendered:
        """Render random notes on one instrument, usually a piano."""
        rng, entries = self.rng, self._training_instruments()
        keyboards = [entry for entry in entries if entry.family == "piano"]
        entry = sample_instrument(keyboards if keyboards and rng.random() < 0.6 else entries, rng)
        low, high = entry.range
        notes = random_notes(self.seconds, low - 2, high + 2, rng)
        voice = voice_for(entry, rng)
        pedal = np.zeros((0, 3))
        if voice.dampers and rng.random() < 0.3:
            pedal = pianos.pedal_depths(pianos.random_pedal(notes, rng), rng)
            notes = pianos.extend_by_pedal(notes, pedal)
        return self._render(shorten_repeats(notes.played_by(entry.number)), [voice], pedal)

    def render_harmonica(self) -> Rendered:
        """Render a harmonica that plays a random melody, or the highest part of a score. If the
        bank has no reeds, render a score instead."""
        rng = self.rng
        reeds = [e for e in self._training_instruments() if e.class_name in REEDS]
        if not reeds:
            return self.render_score()
        notes = random_melody(self.seconds, rng)
        if rng.random() < 0.5:
            notes, _ = self._perform(random_piece(self.sources.groups, rng))
        entry = sample_instrument(reeds, rng)
        voice = replace(voice_for(entry, rng), line=Line(connected=float(rng.uniform(0, 1))))
        notes = harmonica_part(line(notes), rng).played_by(entry.number)
        rendered = self._render(shorten_repeats(notes), [voice], np.zeros((0, 3)))
        return replace(rendered, audio=played_by_hands(rendered.audio, rng))

    def render_singing(self, accompanied: bool) -> Rendered:
        """Render a singer, with or without accompaniment, or sometimes up to four singers."""
        rng = self.rng
        in_parts = not accompanied and rng.random() < CHOIR
        if not accompanied and not in_parts and rng.random() < 0.5:  # without a score
            return self._sing(random_melody(self.seconds, rng), alone=True)
        piece = random_piece(self.sources.groups, rng)
        notes, pedal = self._perform(piece)
        parts = np.unique(notes.part)
        if in_parts and len(parts) > 1:
            sung = rng.permutation(parts)[:4]
            choir, *others = [self._sing(line(notes.where(notes.part == part))) for part in sung]
            for singer in others:
                choir = mix_excerpts(choir, singer, float(rng.uniform(-4, 4)))
            return choir
        height = [notes.pitch[notes.part == part].mean() for part in parts]
        melody = line(notes.where(notes.part == parts[np.argmax(height)]) if height else notes)
        singing = self._sing(melody, alone=not accompanied)
        if not accompanied:
            return singing
        # Remove the sung notes from the parts of the instruments.
        sung_notes = set(zip(melody.onset, melody.pitch, strict=True))
        is_played = [note not in sung_notes for note in zip(notes.onset, notes.pitch, strict=True)]
        band = self._play(piece, notes.where(np.array(is_played, bool)), pedal)
        return mix_excerpts(band, singing, float(rng.uniform(-3, 9)))

    def _training_instruments(self) -> list[Instrument]:
        """Return the entries of the bank that are not held out."""
        instruments = self.sources.bank.instruments
        return [entry for name, entry in instruments.items() if name not in HELD_OUT]

    def _perform(self, piece: Piece) -> tuple[Notes, F64]:
        """Draw a passage of a piece. Return its notes and its pedal presses."""
        latest = max(0.0, piece.seconds - 0.7 * self.seconds)
        begins = piece.notes.onset[: max(1, np.searchsorted(piece.notes.onset, latest))]
        start_s = float(begins[self.rng.integers(len(begins))])
        return perform(piece, start_s, self.seconds, self.rng)

    def _play(
        self, piece: Piece, notes: Notes, pedal: F64, only: tuple[str, ...] | None = None
    ) -> Rendered:
        bank = self.sources.bank
        return self._render(*orchestrate(bank, piece, notes, pedal, self.rng, only))

    def _render(self, notes: Notes, voices: list[Voice], pedal: F64) -> Rendered:
        bank, mechanics = self.sources.bank, self.sources.mechanics
        seconds, cents = self.seconds, self.tuning_cents
        return render(bank, notes, voices, seconds, cents, self.rng, pedal, mechanics)

    def _sing(self, melody: Notes, alone: bool = False) -> Rendered:
        singers, rng = self.sources.singers, self.rng
        # Most recorded voices only speak, so voices that sing get more weight.
        singer = draw(singers, [4.0 if singer.sings else 1.0 for singer in singers], rng)
        melody, habits = shift_to_range(melody, singer, rng), Habits(rng, alone)
        return sing(melody, singer, habits, self.seconds, self.tuning_cents, rng)


def mix_excerpts(first: Rendered, second: Rendered, level_db: float) -> Rendered:
    """Mix excerpts of equal length, with the second ``level_db`` louder (RMS) than the first."""
    loudness = [float(np.sqrt(np.mean(np.square(part.audio)))) for part in (first, second)]
    gain = loudness[0] / max(1e-9, loudness[1]) * 10 ** (level_db / 20) if loudness[0] else 1.0
    parts = int(first.notes.part.max(initial=-1)) + 1
    moved = second.notes.replaced(part=(second.notes.part + parts).astype(np.int16))
    audio = first.audio + np.float32(gain) * second.audio
    pedals = [part.pedal for part in (first, second) if part.pedal is not None]
    pedal = np.concatenate(pedals) if pedals else None  # presses may overlap
    return Rendered(audio, joined([first.notes, moved]), pedal)


BACKGROUND = 0.12  # fraction of the rendered excerpts that have no notes
RANDOM = 0.12  # fraction of the rendered excerpts that have random notes instead of a score
HARMONICA = 0.08  # fraction of the rendered excerpts with a harmonica
SUNG = 0.2  # fraction of the other rendered excerpts with singing, if there are recorded voices


def training_excerpt(sources: TrainingSources, config: SynthConfig, rng: Rng) -> Rendered:
    """Draw an augmented excerpt: a real recording, a score, singing, random notes or no notes."""
    seconds = float(rng.uniform(0.8 * config.excerpt_s, 1.2 * config.excerpt_s))
    surroundings, degradation = sources.surroundings, Degradation()
    if sources.recordings and rng.random() < config.real_probability:
        kinds = list(sources.recordings.values())
        group = draw(kinds, [REAL[name] for name in sources.recordings], rng)
        return recorded_excerpt(group, seconds, degradation, rng, surroundings)
    kind = rng.random()
    if kind < BACKGROUND:
        length = int(seconds * SAMPLE_RATE)
        sound = random_background(length, rng, surroundings.sounds)
        return Rendered(augment(sound, rng, surroundings), joined([]))
    builder = ExcerptBuilder(sources, rng, seconds)
    if kind < BACKGROUND + RANDOM:
        rendered = builder.render_random_notes()
    elif kind < BACKGROUND + RANDOM + HARMONICA:
        rendered = builder.render_harmonica()
    elif sources.singers and rng.random() < SUNG:
        accompanied = rng.random() < 0.5
        rendered = builder.render_singing(accompanied)
        degradation = PRODUCED if accompanied else degradation
    else:
        rendered = builder.render_score()
        if rng.random() < 0.15:  # a larger ensemble
            rendered = mix_excerpts(rendered, builder.render_score(), float(rng.uniform(-8, 4)))
    return replace(rendered, audio=augment(rendered.audio, rng, surroundings, degradation))


SEMITONES = (-2, -1, 0, 0, 0, 1, 2)  # transpositions, which also change the speed


def recorded_excerpt(
    recordings: Sequence[real.RealRecording],
    seconds: float,
    degradation: Degradation,
    rng: Rng,
    surroundings: Surroundings,
) -> Rendered:
    """Return an augmented excerpt of a random recording, drawn with a probability proportional to
    its length. Uses a recording in full if it is shorter than ``seconds``."""
    recording = draw(recordings, [len(recording.audio) for recording in recordings], rng)
    semitones = int(rng.choice(SEMITONES))
    speed = 2 ** ((semitones + rng.uniform(-25, 25) / 100) / 12)
    span = min(len(recording.audio), int(seconds * speed * SAMPLE_RATE))
    begin = int(rng.integers(len(recording.audio) - span + 1))
    source, notes, uncertain = recording.part(begin, span, speed, semitones)
    audio = soxr.resample(source, speed * SAMPLE_RATE, SAMPLE_RATE)
    degradation = replace(degradation, room=0.15 * degradation.room)  # recordings have a room
    return Rendered(augment(audio, rng, surroundings, degradation), notes, unknown=uncertain)
