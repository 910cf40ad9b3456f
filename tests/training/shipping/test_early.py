"""Thresholds by age: as low as new false notes stay rare."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.notes.tracker_settings import TrackerSettings
from training.shipping.early import NEW_FALSE, OnsetPeaks, choose, lowest_threshold


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
