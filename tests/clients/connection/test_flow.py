"""The counts behind a sender that holds back."""

import pytest

from clients.connection.flow import FlowControl
from service.protocol.server_messages import Flushed, Limits

RATE = 1_000  # samples a second, of 2 bytes


def flow(max_unacknowledged_s: float = 0.8) -> FlowControl:
    return FlowControl(frame_bytes=2, sample_rate=RATE, max_unacknowledged_s=max_unacknowledged_s)


def test_it_is_full_beyond_the_window_and_room_comes_with_what_is_acknowledged() -> None:
    counts = flow()
    counts.sent(2 * 800)
    assert not counts.full
    counts.sent(2)
    assert counts.full
    counts.acknowledge(1)
    assert not counts.full
    counts.acknowledge(0)  # late news
    assert (counts.sent_samples, counts.acknowledged_samples) == (801, 1)
    assert not counts.full


def test_markers_come_past_half_the_window_a_quarter_of_it_apart() -> None:
    counts = flow()
    markers = [counts.sent(2 * 100) for _ in range(8)]
    assert [place for place, marker in enumerate(markers, 1) if marker is not None] == [5, 8]


def test_a_marker_that_returns_acknowledges_the_audio_before_it() -> None:
    counts = flow()
    marker = counts.sent(2 * 500)
    assert marker is not None
    counts.sent(2 * 400)
    assert counts.full
    assert counts.returned(Flushed(id=marker, frame=0))
    assert counts.acknowledged_samples == 500
    assert not counts.full


@pytest.mark.parametrize(
    ("limits", "message_bytes", "window"),
    [
        ((400, 65_536), 100, 400),
        ((10_000, 64), 64, 800),
        ((1, 65_536), 2, 1),  # a message holds one sample at least
    ],
)
def test_the_narrower_limit_counts(
    limits: tuple[int, int], message_bytes: int, window: int
) -> None:
    counts = flow()
    buffered_ms, bytes_ = limits
    counts.limit(
        Limits(
            max_buffered_ms=buffered_ms,
            max_message_bytes=bytes_,
            max_session_s=3_600,
            idle_timeout_s=30,
        )
    )
    assert counts.max_message_bytes == message_bytes
    counts.sent(2 * window)
    assert not counts.full
    counts.sent(2)
    assert counts.full


@pytest.mark.parametrize("name", ["a", "acknowledge-", "acknowledge-me"])
def test_ids_of_the_caller_are_none_of_its_markers(name: str) -> None:
    counts = flow()
    counts.sent(2 * 100)
    assert not counts.returned(Flushed(id=name, frame=0))
    assert counts.acknowledged_samples == 0
