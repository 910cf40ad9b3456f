"""Tests of the service's side of a session: when it forwards audio to the worker."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from model.config import LIVE
from service.live.session import SessionProxy
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import AudioFormat, Encoding, Mode, StreamOptions
from service.stream.stream import Stream
from service.workers.client import WorkerClient
from service.workers.worker import Audio
from tests.service.workers.sessions import open_command


class RecordingWorker:
    """Worker that records the audio sent to it."""

    def __init__(self) -> None:
        self.audio: list[bytes] = []

    def open(self, *_: object) -> int:
        return 1

    def send(self, message: Audio) -> None:
        if message.data:
            self.audio.append(message.data)


@given(
    st.sampled_from([8_000, 11_025, 44_100, 48_000]),
    st.sampled_from([StreamOptions(block_frames=8), StreamOptions(mode=Mode.ANYTIME)]),
    st.lists(st.integers(1, 4_001), min_size=1, max_size=60),
)
def test_audio_is_forwarded_once_it_completes_a_window(
    rate_hz: int, options: StreamOptions, sizes: list[int]
) -> None:
    audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=rate_hz)
    worker = RecordingWorker()
    command = open_command(rate_hz, mode=options.mode, block_frames=options.block_frames)
    proxy = SessionProxy(command, LIVE, cast(WorkerClient, worker))
    at_client, at_worker = (Stream(LIVE, TrackerSettings(), audio, options) for _ in range(2))
    sent = 0
    for size in sizes:
        before = at_client.pending_windows
        proxy.send(bytes(size))
        at_client.feed(bytes(size))
        for data in worker.audio[sent:]:
            at_worker.feed(data)
        assert at_worker.pending_windows == at_client.pending_windows
        assert (len(worker.audio) > sent) == (at_client.pending_windows > before)
        sent = len(worker.audio)
    proxy.end("stop")
    assert sum(map(len, worker.audio)) == sum(sizes)


def test_empty_messages_are_not_kept() -> None:
    worker = RecordingWorker()
    proxy = SessionProxy(open_command(8_000), LIVE, cast(WorkerClient, worker))
    for _ in range(3):
        proxy.send(b"")
    proxy.flush("a")
    assert worker.audio == []
