"""Tests of the training targets of a segment."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import FRAMES, HOP, PITCHES, SAMPLE_RATE
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, notes_of
from training.music.targets import ONSET_HOPS, ONSET_SCALE, PEDAL_SCALE, segment_labels

NoteList = list[tuple[int, int, int, int]]  # onset and length in samples, pitch, velocity

note_lists: st.SearchStrategy[NoteList] = st.lists(
    st.tuples(
        st.integers(0, 20_000), st.integers(1, 9_000), st.integers(60, 63), st.integers(1, 127)
    ),
    max_size=10,
)


def as_notes(notes: NoteList) -> Notes:
    table = np.array(notes, float).reshape(-1, 4)
    return notes_of(table[:, 0] / SAMPLE_RATE, table[:, :2].sum(1) / SAMPLE_RATE, *table[:, 2:].T)


@settings(max_examples=30)
@given(note_lists, st.integers(0, 12_000))
def test_targets_follow_their_definition(notes: NoteList, start: int) -> None:
    targets = segment_labels(as_notes(notes), SAMPLE_RATE, start)
    frame, onset, velocity, offset = targets[:4]
    assert frame.shape == onset.shape == velocity.shape == offset.shape == (FRAMES, PITCHES)
    expected_frame = np.zeros((FRAMES, PITCHES))
    expected_onset = np.zeros((FRAMES, PITCHES))
    expected_offset = np.zeros((FRAMES, PITCHES))
    possible_velocities: dict[tuple[int, int], set[int]] = {}
    for first, length, pitch, loudness in notes:
        for i in range(FRAMES):
            sample = start + HOP * (i + 1)
            if first <= sample < first + length:
                expected_frame[i, pitch] = 1
            end = max(0.0, 1 - abs(sample - first - length) / (ONSET_HOPS * HOP))
            expected_offset[i, pitch] = max(expected_offset[i, pitch], end)
            target = max(0.0, 1 - abs(sample - first) / (ONSET_HOPS * HOP))
            if target > expected_onset[i, pitch] + 1e-9:
                expected_onset[i, pitch], possible_velocities[i, pitch] = target, {loudness}
            elif target > 0 and target > expected_onset[i, pitch] - 1e-9:
                possible_velocities[i, pitch].add(loudness)
    np.testing.assert_array_equal(frame, expected_frame)
    np.testing.assert_allclose(onset, expected_onset * ONSET_SCALE, atol=0.51)
    np.testing.assert_allclose(offset, expected_offset * ONSET_SCALE, atol=0.51)
    for i, pitch in zip(*np.nonzero(onset), strict=True):
        assert int(velocity[i, pitch]) in possible_velocities[i, pitch]
    assert not velocity[onset == 0].any()


def test_pedal_targets_have_the_depth_of_the_pedal() -> None:
    hop_s = HOP / SAMPLE_RATE
    presses = np.array([[5 * hop_s, 10 * hop_s, 1.0], [20 * hop_s, 30 * hop_s, 0.5]])
    pedal = segment_labels(notes_of([], [], []), SAMPLE_RATE, pedal=presses).pedal
    expected = np.zeros(FRAMES)
    expected[4:9], expected[19:29] = PEDAL_SCALE, PEDAL_SCALE / 2
    np.testing.assert_array_equal(pedal, expected)


def test_uncertain_regions_mark_labels_as_unknown() -> None:
    hop_s = HOP / SAMPLE_RATE
    uncertain = np.array(
        [[1 * hop_s, 4 * hop_s, 60, FRAME_UNKNOWN], [2 * hop_s, 3 * hop_s, -1, ONSET_UNKNOWN]]
    )
    targets = segment_labels(notes_of([], [], []), SAMPLE_RATE, unknown=uncertain)
    assert targets.frame_unknown.sum() == targets.frame_unknown[:3, 60].sum() == 3
    assert targets.onset_unknown.sum() == targets.onset_unknown[1].sum() == PITCHES
