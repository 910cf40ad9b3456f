"""Choose how notes are named and the pedal is read: ``python -m training.shipping.naming --write``.

The belief's constants (``service.notes.belief``) and the pedal's thresholds, on the passages of
``training.evaluation.instruments`` drawn with another seed: validation scores on held-out
instruments. ``--pieces`` is the number of passages of each instrument; there are ten times as many
ensembles and pianos. The other settings of the card are kept, so run this after
``training.shipping.tune``. The objective is the instrument accuracy of solos plus that of ensembles
plus, of the pedal, the mean of the F1 of frames with it down and with it up: pianists hold it most
of the time, so that the first alone is best served by "always".
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, INSTRUMENT_HEADS
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.listener import Listener
from service.notes.score import Score
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.stream.recording import transcribe_array
from training.evaluation.instruments import Passage, down_frames, pedal_frames, rendered_passages
from training.music.metrics import confusion, estimated_notes, matched_onsets
from training.music.synth.config import SynthConfig
from training.shipping.tune import TuningPart, command, tune

STREAM = StreamOptions(lookahead_ms=100.0, block_frames=16)
SHARES = (0.02, *(i / 20 for i in range(1, 20)))
GRID: dict[str, Sequence[Any]] = {
    "belief_trust": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0),
    "belief_kept": (0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
    "belief_prior_notes": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "pedal_presence_threshold": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    "pedal_on_threshold": SHARES,
    "pedal_off_threshold": SHARES,
}


class NamingPieces:
    """Passages with their seconds and as the network hears them, [heads, frames, PITCHES]."""

    def __init__(
        self, transcriber: TranscriptionModel, synth: SynthConfig, passages: int, seconds: float
    ) -> None:
        """Args:
        passages: of each held-out instrument.
        seconds: of a passage, at most.
        """
        self.heads = tuple(transcriber.config.heads)
        self._frame_s = HOP / transcriber.config.sample_rate
        self.passages: list[tuple[Passage, float, NDArray[np.float16]]] = []
        with LocalComputer(transcriber) as computer:
            for passage, rate in rendered_passages(synth, passages, seconds):
                heard = transcribe_array(passage.audio, rate, computer, STREAM).probabilities
                length_s = len(passage.audio) / rate
                self.passages.append((passage, length_s, heard.astype(np.float16)))

    def objective(self, settings: TrackerSettings) -> float:
        """See the module; what no passage has counts 0."""
        named = {kind: np.zeros(2) for kind in ("solo", "ensemble", "piano")}  # right, of all
        pedal = np.zeros((2, 3))  # up and down: frames of both, of the labels, as heard
        for passage, seconds, probabilities in self.passages:
            listener, score = Listener(settings, self._frame_s, self.heads), Score()
            score.add(listener.push(0, probabilities.astype(np.float32)))
            score.add(listener.finish(probabilities.shape[1]))
            notes = estimated_notes(score.notes)
            counts = confusion(passage.notes, notes, matched_onsets(passage.notes, notes))
            named[passage.kind] += [counts.trace(), counts.sum()]
            if passage.kind == "piano" and passage.pedal is not None:
                label = down_frames(passage.pedal, seconds)
                presses = [(press.onset_s, press.offset_s) for press in score.pedal]
                found = pedal_frames(np.array(presses).reshape(-1, 2), seconds)
                for down in (0, 1):
                    one, other = label == down, found == down
                    pedal[down] += [(one & other).sum(), one.sum(), other.sum()]
        accuracy = sum(right / max(1, total) for right, total in (named["solo"], named["ensemble"]))
        return float(accuracy + np.mean(2 * pedal[:, 0] / np.maximum(1, pedal[:, 1:].sum(axis=1))))


def naming_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, passages: int, seconds: float
) -> TrackerSettings:
    """The settings in the card of the weights, with the best of GRID."""
    settings = TrackerSettings.from_card(transcriber.card)
    other = replace(synth, seed=synth.seed + 1)
    pieces = NamingPieces(transcriber, other, passages, seconds)
    return tune(pieces.objective, settings, GRID)


PART = TuningPart(
    naming_settings, pieces=2, seconds=15.0, heads=frozenset({"pedal", *INSTRUMENT_HEADS})
)


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.naming", __doc__, PART, arguments)


if __name__ == "__main__":
    sys.exit(main())
