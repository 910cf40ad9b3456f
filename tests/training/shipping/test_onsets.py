"""The classifier of note beginnings, and thresholds by age."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.config import HOP, SAMPLE_RATE
from service.notes.onsets import INPUTS
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.drawn_notes import ALL_HEADS, FRAME_S, draw, silence
from tests.training.music.synth.test_acoustics import write_noise
from training.music.metrics import note_list
from training.music.synth.config import SynthConfig
from training.shipping.early import NEW_FALSE, OnsetPeaks, choose, lowest_threshold
from training.shipping.onsets import Examples, fit, made_up, of_stream, unmusical
from training.shipping.pieces import Truth


def test_it_learns_a_rule_that_one_threshold_cannot_state() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(3, 2, (6000, INPUTS))
    begins = (inputs[:, 2] - 3) * (inputs[:, 12] - 3) > 0
    classifier = fit(Examples(inputs[:5000], begins[:5000]))
    right = (classifier(inputs[5000:]) > 0.5) == begins[5000:]
    assert right.mean() > 0.85  # 0.5 by either input alone


def test_peaks_are_labelled_by_the_notes_that_begin_there() -> None:
    drawn = silence(100, heads=len(ALL_HEADS))
    for pitch, onset in ((60, 20.0), (72, 20.0), (64, 50.0), (50, 80.0)):
        draw(drawn, pitch, onset, int(onset) + 10)
    unknown = np.zeros((100, 128), bool)
    unknown[75:85, 50] = True  # an ornament that the score leaves open
    rows = np.array([(20.3 * FRAME_S, 1.0, 60, 64), (53.0 * FRAME_S, 1.0, 64, 64)])
    truth = Truth(note_list(rows), unknown, FRAME_S)
    found = of_stream(drawn, ALL_HEADS, truth)
    # 60 begins, its overtone 72 does not, 64 begins within 50 ms; nobody knows about 50.
    assert sorted(found.begins.tolist()) == [False, True, True]
    assert found.inputs.shape == (3, INPUTS)


def test_every_peak_in_speech_drums_and_noise_is_false(tmp_path: Path) -> None:
    frames, config = 40, SynthConfig(tmp_path, tmp_path)
    assert not list(unmusical(config, SAMPLE_RATE, 1, 1.0))  # nothing is recorded
    write_noise(tmp_path)
    drawn = silence(frames, heads=len(ALL_HEADS))
    draw(drawn, 60, 20.0, 30)
    stretches = list(unmusical(config, SAMPLE_RATE, 10, frames * HOP / SAMPLE_RATE))
    assert len(stretches) > 10
    for audio, truth in stretches:
        assert len(audio) == frames * HOP
        assert of_stream(drawn, ALL_HEADS, truth).begins.tolist() == [False]


def test_made_up_tones_begin_where_their_truth_says() -> None:
    rises = []
    for audio, truth in made_up(SAMPLE_RATE, 2, 6.0):
        assert len(audio) == 6 * SAMPLE_RATE
        for onset_s, pitch in zip(truth.notes.onset_s, truth.notes.pitch, strict=True):
            at, near = round(onset_s * SAMPLE_RATE), round(0.1 * SAMPLE_RATE)
            frequency = 440 * 2 ** ((pitch - 69) / 12) / SAMPLE_RATE
            turn = np.exp(-2j * np.pi * frequency * np.arange(near))
            before, after = audio[max(0, at - near) : at], audio[at : at + near]
            rises.append(
                abs(after @ turn[: len(after)]) > 2 * abs(before @ turn[len(turn) - len(before) :])
            )
    assert len(rises) > 20
    assert np.mean(rises) > 0.9


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.floats(0, 0.3))
def test_above_the_threshold_new_false_notes_are_rare(seed: int, count: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    probability = rng.random(count)
    bad = rng.random(count) < share
    threshold = lowest_threshold(probability, bad)
    sent = probability >= threshold
    # The threshold is rounded upwards, which may leave out some good ones of the same hundredth.
    slack = ((probability < threshold) & (probability > threshold - 0.01)).sum()
    assert bad[sent].sum() <= NEW_FALSE * (sent.sum() + slack)


def test_thresholds_fall_with_age_and_the_median_is_that_of_the_first_sent() -> None:
    age = np.array([0, 0, 1, 1, 2, 2])
    probability = np.array([0.4, 0.6, 0.55, 0.9, 0.8, 0.9])
    false = np.array([True, False, False, False, False, False])
    note = np.array([-1, 0, 0, 1, 0, 1])
    waited = np.array([0.0, 0.2, 1.2, 1.0, 2.2, 2.0])
    peaks = OnsetPeaks(age, probability, false, false, note, waited)
    chosen = choose(peaks, TrackerSettings(onset_threshold=0.3), last_age=2)
    assert chosen.early_onset_thresholds == (0.6, 0.55)
    assert chosen.usual_onset_age == 0.6  # note 0 after 0.2 frames, note 1 after 1.0
