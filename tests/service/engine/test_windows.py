"""The schedule of windows: every frame once, each from a window that holds it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import CENTRE_FRAME, FRAMES, HOP, WINDOW
from service.engine.windows import WindowSchedule
from service.protocol.options import Mode, StreamOptions


@given(lookahead=st.integers(1, 32), block=st.integers(1, 31), samples=st.integers(0, 20_000))
def test_blocks_cover_every_frame_exactly_once(lookahead: int, block: int, samples: int) -> None:
    schedule = WindowSchedule(lookahead, block)
    frames = [
        schedule.first_frame(j) + i for j in range(schedule.blocks(samples)) for i in range(block)
    ]
    count = schedule.frames(samples)
    assert frames[:count] == list(range(count))
    assert len(frames) - count < block
    assert HOP * (count - 1) < samples <= HOP * count


@given(lookahead=st.integers(1, 32), block=st.integers(1, 31), index=st.integers(0, 1000))
def test_position_i_of_a_window_is_the_sample_of_its_frame(
    lookahead: int, block: int, index: int
) -> None:
    schedule = WindowSchedule(lookahead, block)
    start = schedule.end_sample(index) - WINDOW
    positions = list(range(FRAMES))[schedule.positions]
    assert len(positions) == block
    for i, position in enumerate(positions):
        assert start + HOP * (position + 1) == HOP * (schedule.first_frame(index) + i)
    newest = HOP * (schedule.first_frame(index) + block - 1)
    assert schedule.end_sample(index) - newest == lookahead * HOP
    assert schedule.end_sample(index + 1) - schedule.end_sample(index) == block * HOP


def test_centre_mode_reads_the_middle_of_a_window_at_every_hop() -> None:
    schedule = WindowSchedule.of(StreamOptions(mode=Mode.CENTRE, block_frames=9), 11_025)
    assert schedule.block_frames == 1
    assert schedule.positions == slice(CENTRE_FRAME, CENTRE_FRAME + 1)
    assert schedule.end_sample(0) == WINDOW // 2


@pytest.mark.parametrize(("lookahead", "block"), [(0, 1), (1, 0), (32, 33), (63, 2)])
def test_what_no_window_holds_is_refused(lookahead: int, block: int) -> None:
    with pytest.raises(ValueError, match="do not fit into a window"):
        WindowSchedule(lookahead, block)
