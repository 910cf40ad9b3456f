"""The order in which requests become batches."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching import (
    EngineBusyError,
    EngineClosedError,
    EngineSettings,
    Priority,
    Request,
    RequestQueue,
    RequestStream,
)

SETTINGS = EngineSettings(max_batch_windows=6, max_file_batch_windows=4, gather_ms=0)
WINDOW = np.zeros(1, np.float32)


def request(stream: RequestStream, windows: int = 1) -> Request[RequestStream]:
    return Request(stream, [WINDOW] * windows, 1, Future())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=40))
def test_every_request_is_served_once_in_the_order_of_its_stream(
    asked: list[tuple[int, int]],
) -> None:
    streams = [RequestStream(Priority(i % 2)) for i in range(6)]
    queue: RequestQueue[RequestStream] = RequestQueue(SETTINGS)
    requests = [request(streams[number], windows) for number, windows in asked]
    for one in requests:
        queue.put(one)
    assert queue.windows == sum(windows for _, windows in asked)
    batches = []
    while batch := queue.next_batch(0):
        batches.append(batch)
    served = [one for batch in batches for one in batch]
    assert sorted(map(id, served)) == sorted(map(id, requests))
    for stream in streams:
        assert [id(r) for r in served if r.stream is stream] == [
            id(r) for r in requests if r.stream is stream
        ]
    priorities = [{r.stream.priority for r in batch} for batch in batches]
    assert all(len(one) == 1 for one in priorities)
    assert [min(one) for one in priorities] == sorted(min(one) for one in priorities)
    for batch in batches:
        assert len({r.stream for r in batch}) == len(batch)
        live = batch[0].stream.priority is Priority.LIVE
        assert sum(len(r.windows) for r in batch) <= (6 if live else 4)
    assert queue.windows == 0


def test_a_full_queue_takes_nothing() -> None:
    settings = EngineSettings(max_batch_windows=3, max_queued_windows=4)
    queue: RequestQueue[RequestStream] = RequestQueue(settings)
    stream = RequestStream(Priority.LIVE)
    queue.put(request(stream, 3))
    with pytest.raises(EngineBusyError, match="3 windows wait"):
        queue.put(request(stream, 2))
    queue.put(request(stream, 1))
    with pytest.raises(ValueError, match="1 to 3 windows, not 4"):
        queue.put(request(stream, 4))


def test_a_closed_queue_gives_back_what_waits() -> None:
    queue: RequestQueue[RequestStream] = RequestQueue(SETTINGS)
    stream = RequestStream(Priority.FILE)
    waiting = request(stream)
    queue.put(waiting)
    assert queue.close() == [waiting]
    assert queue.closed
    assert queue.next_batch(0) == []
    assert queue.windows == 0
    with pytest.raises(EngineClosedError):
        queue.put(request(stream))
    with pytest.raises(EngineClosedError):
        queue.enter(stream)
