"""A machine that cannot keep up: longer blocks, then the end of the session, and back again."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from torch import Tensor

from service.engine.engine import Engine
from service.live.overload import Ladder, QualityControl, Step
from service.notes.events import NoteEvent
from service.protocol.faults import ErrorCode, ProtocolError
from service.session.options import AudioFormat, Encoding, StreamOptions
from service.session.resume import ResumePoint
from service.session.session import TranscriptionSession
from service.settings import Settings
from tests.fakes import FakeTranscriber
from tests.service.apps import (
    MELODY,
    RATE_HZ,
    START,
    check_notes,
    chunks,
    hear,
    melody,
    of_type,
    pcm16,
    serving,
)

SETTINGS = Settings(lagging_ms=500, degrade_after_s=2, overload_timeout_s=10, recover_after_s=30)
PCM = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=RATE_HZ)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_short_lag_changes_nothing() -> None:
    clock = Clock()
    ladder = Ladder(SETTINGS, clock)
    for late_ms in (0, 600, 600, 400, 600, 600, 0) * 20:
        assert ladder.look(late_ms, coarsest=False, finest=True) is Step.STAY
        clock.now_s += 0.9


def test_a_lasting_lag_is_answered_step_by_step_and_then_with_the_end() -> None:
    clock = Clock()
    ladder = Ladder(SETTINGS, clock)
    steps: dict[float, Step] = {}
    coarse = 0
    while Step.GIVE_UP not in steps.values():
        step = ladder.look(900, coarsest=coarse == 3, finest=coarse == 0)
        coarse += step is Step.COARSER
        if step is not Step.STAY:
            steps[clock.now_s] = step
        clock.now_s += 0.5
    assert steps == {2: Step.COARSER, 4: Step.COARSER, 6: Step.COARSER, 16: Step.GIVE_UP}


def test_overload_ends_and_the_blocks_come_back() -> None:
    clock = Clock()
    ladder = Ladder(SETTINGS, clock)
    ladder.look(900, coarsest=True, finest=False)
    clock.now_s += 9.9
    assert ladder.look(900, coarsest=True, finest=False) is Step.STAY
    assert ladder.look(100, coarsest=True, finest=False) is Step.STAY
    clock.now_s += 29
    assert ladder.look(100, coarsest=True, finest=False) is Step.STAY
    clock.now_s += 1
    assert ladder.look(100, coarsest=True, finest=False) is Step.FINER
    clock.now_s += 30
    assert ladder.look(100, coarsest=False, finest=True) is Step.STAY
    # And a new lag has its whole time again.
    assert ladder.look(900, coarsest=True, finest=False) is Step.STAY
    clock.now_s += 9.9
    assert ladder.look(900, coarsest=True, finest=False) is Step.STAY


@pytest.mark.parametrize("sizes", [(8,), (8, 16, 32, 16, 8, 4)])
async def test_other_blocks_leave_every_frame_in_its_place(sizes: tuple[int, ...]) -> None:
    async def transcribe(sizes: tuple[int, ...]) -> tuple[np.ndarray, list[int], bytes]:
        wanted, shown = list(sizes), list[tuple[int, np.ndarray]]()
        with Engine(FakeTranscriber()) as engine:
            session = TranscriptionSession(
                engine, PCM, StreamOptions(), on_frames=lambda f, p: shown.append((f, p.copy()))
            )
            for chunk in chunks(pcm16(np.tile(melody(), 2)), 1000):
                await session.push(chunk)
                if wanted and session.block_frames == wanted[0]:
                    wanted.pop(0)
                if wanted:
                    session.change_blocks(wanted[0])
            assert not wanted
            await session.finish()
            lengths = [block.shape[1] for _, block in shown]
            assert [first for first, _ in shown] == [0, *np.cumsum(lengths)[:-1]]
            frames = np.concatenate([block for _, block in shown], axis=1)
            return frames, [note.pitch for note in session.notes], session.midi()

    plain, changed = await transcribe(()), await transcribe(sizes)
    assert changed[0].shape == plain[0].shape
    np.testing.assert_allclose(changed[0], plain[0], atol=1e-5)
    assert changed[1:] == plain[1:]
    assert plain[1] == 2 * [pitch for pitch, _, _ in MELODY]


async def test_a_stream_with_longer_blocks_is_resumed_with_those_of_its_start() -> None:
    """A client goes on with the options that `ready` told it, whatever became of them since."""
    told: list[tuple[str, int, int]] = []
    points: dict[ResumePoint, int] = {}  # and the events before each
    audio = pcm16(np.tile(melody(), 6))

    def add(events: list[NoteEvent]) -> None:
        told.extend((event.kind, event.note_id, event.frame) for event in events)

    with Engine(FakeTranscriber()) as engine:
        session = TranscriptionSession(engine, PCM, StreamOptions())
        session.change_blocks(32)
        for chunk in chunks(audio, 1000):
            add(await session.push(chunk))
            points.setdefault(session.point, len(told))
        assert session.block_frames == 32
        add(await session.finish())
        whole = list(told)
        assert len(points) > 20
        for number, (point, before) in enumerate(points.items()):
            session = TranscriptionSession(engine, PCM, StreamOptions(), resume=point)
            if number % 8 == 7:
                del told[before:]
                add(await session.push(audio[2 * point.from_sample :]))
                add(await session.finish())
                assert told == whole
            session.abort()


async def test_the_delay_follows_the_blocks() -> None:
    with Engine(FakeTranscriber()) as engine:
        session = TranscriptionSession(engine, PCM, StreamOptions())
        clock = Clock()
        control = QualityControl(session, SETTINGS, clock)
        before_ms, changes = session.delay.note_on_ms, 0
        audio = iter(chunks(pcm16(np.tile(melody(), 10)), 2000))
        while clock.now_s < 15:
            await session.push(next(audio))
            changes += control.keep_up(900)
            clock.now_s += 0.1
        assert (changes, session.block_frames) == (3, 32)
        clock.now_s += 10
        with pytest.raises(ProtocolError, match="900 ms late") as given_up:
            control.keep_up(900)
        assert given_up.value.code is ErrorCode.OVERLOADED
        hop_ms = 1000 * 128 / engine.config.sample_rate
        assert session.delay.note_on_ms - before_ms == pytest.approx(28 * hop_ms)
        session.abort()


class SlowTranscriber(FakeTranscriber):
    """Takes its time once it is told to."""

    step_s = 0.0

    def predict_features(self, features: Tensor) -> Tensor:
        time.sleep(self.step_s)
        return super().predict_features(features)


def test_a_client_is_told_of_each_step_and_gets_its_notes() -> None:
    model = SlowTranscriber()
    limits = {"lagging_ms": 50, "degrade_after_s": 0.05, "overload_timeout_s": 0.2}
    with serving(model, **limits) as (client, _):
        model.step_s = 1.0  # even a window of 32 frames, 372 ms, takes longer than it lasts
        with client.websocket_connect("/ws/transcribe") as socket:
            socket.send_text(json.dumps(START))
            for chunk in chunks(pcm16(np.tile(melody(), 6)), 20_000):
                socket.send_bytes(chunk)
            messages, code = hear(socket)
    assert code == 4429
    assert of_type(messages, "lagging")
    sizes = [message["block_frames"] for message in of_type(messages, "quality")]
    assert sizes == [8, 16, 32][: len(sizes)]
    assert sizes
    (error,) = of_type(messages, "error")
    assert (error["code"], error["retryable"]) == ("overloaded", True)
    check_notes(messages)
    done = messages[-1]
    # What was not heard is told: the client has it still.
    assert 0 < done["totals"]["received_samples"] < 6 * len(melody())
