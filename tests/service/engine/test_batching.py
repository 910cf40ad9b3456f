"""The order in which requests become batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.engine.batching import (
    EngineSettings,
    Part,
    Priority,
    Request,
    RequestQueue,
    RequestStream,
)

SETTINGS = EngineSettings(max_batch_windows=6, max_file_batch_windows=4, gather_ms=0)
WINDOW = np.zeros(1, np.float32)
ALL = slice(0, 63)
Batch = list[Part]


def request(stream: RequestStream, windows: int = 1, due_s: float = 0.0) -> Request:
    return Request(stream, [WINDOW] * windows, 1, due_s)


def stream(priority: Priority = Priority.LIVE, positions: slice = ALL) -> RequestStream:
    return RequestStream(priority, positions)


def next_batch(queue: RequestQueue) -> Batch:
    """The next batch, its front-end run at once."""
    batch = queue.next_batch(0)
    for part in batch:
        queue.release(part.request.stream)
    return batch


@given(
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=40),
    limit=st.integers(1, 8),
)
def test_every_window_is_served_once_in_the_order_of_its_stream(
    asked: list[tuple[int, int]], limit: int
) -> None:
    streams = [stream(Priority(i % 2), slice(i // 2 % 2, 63)) for i in range(6)]
    queue = RequestQueue(SETTINGS)
    queue.bound(limit, 0)
    requests = [request(streams[number], windows) for number, windows in asked]
    for one in requests:
        queue.put(one)
    batches: list[Batch] = []
    while batch := next_batch(queue):
        batches.append(batch)
    served = [part for batch in batches for part in batch]
    for one in requests:
        parts = [part for part in served if part.request is one]
        assert [i for part in parts for i in range(part.first, part.stop)] == list(
            range(len(one.windows))
        )
    for each in streams:
        order = [requests.index(part.request) for part in served if part.request.stream is each]
        assert order == sorted(order)
    first = [batch[0].request.stream.priority for batch in batches]
    assert first == sorted(first)
    for batch in batches:
        assert len({part.request.stream.priority for part in batch}) == 1
        assert len({part.request.stream.positions.start for part in batch}) == 1
        assert len({part.request.stream for part in batch}) == len(batch)
        live = batch[0].request.stream.priority is Priority.LIVE
        assert sum(map(len, batch)) <= min(limit, 6 if live else 4)


def test_what_is_due_first_goes_first() -> None:
    queue = RequestQueue(SETTINGS)
    queue.bound(1, 0)
    requests = [request(stream(), due_s=due_s) for due_s in (3.0, 1.0, 2.0)]
    for one in requests:
        queue.put(one)
    order = [next_batch(queue)[0].request for _ in requests]
    assert order == [requests[1], requests[2], requests[0]]


def test_one_worker_is_left_to_live_streams() -> None:
    queue = RequestQueue(SETTINGS)
    queue.bound(1, 0, workers=2)
    live = stream()
    queue.enter(live)
    for _ in range(2):
        queue.put(request(stream(Priority.FILE), 1))
    assert queue.next_batch(0, worker=1)
    assert queue.next_batch(0) == []
    queue.put(request(live))
    assert [part.request.stream for part in queue.next_batch(0)] == [live]
    assert queue.next_batch(0) == []
    queue.leave(live)
    assert len(queue.next_batch(0)) == 1


def test_streams_that_stay_with_workers_take_turns_beside_a_live_one() -> None:
    """The worker that has just computed a recording leaves the next turn to an older one."""
    queue = RequestQueue(SETTINGS)
    queue.bound(1, 0, workers=2)
    queue.pin(2)
    queue.enter(stream())
    first, second = stream(Priority.FILE), stream(Priority.FILE)
    for one, worker in ((first, 0), (second, 1)):
        one.worker = worker
    for one in (second, first, second):
        queue.put(request(one, 1))
    turns = []
    for worker in (0, 1, 1, 0, 0, 1):
        if batch := queue.next_batch(0, worker):
            turns.append((worker, batch[0].request.stream is first))
            queue.release(batch[0].request.stream)
    assert turns == [(1, False), (0, True), (1, False)]
