"""Sessions: every fault, and every way to end, leaves all notes ended and loses none."""

import asyncio

import numpy as np
import pytest

from service.audio.pcm import BadAudioError
from service.engine.engine import Engine, EngineError
from service.notes.events import Event
from service.protocol.options import StreamOptions
from service.session.session import TranscriptionSession
from service.session.session_state import SessionState, SessionStateError, TooManyNotesError
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.sessions import MELODY, found, pcm, to_bytes, transcribe


def test_bad_audio_loses_nothing_before_it(engine: Engine) -> None:
    audio = pcm(FAKE_RATE_HZ)
    samples = play([(69, 0.1, 0.5), (81, 0.6, 2.0)], 2.0, FAKE_RATE_HZ)
    bad_at = FAKE_RATE_HZ  # 1 s
    spoilt = samples.copy()
    spoilt[bad_at] = np.nan

    async def run() -> list[Event]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        with pytest.raises(BadAudioError, match=f"sample {bad_at} is nan"):
            await session.push(to_bytes(spoilt, audio))
        assert session.state is SessionState.FAILED
        with pytest.raises(SessionStateError, match="the session is failed"):
            await session.push(b"\0" * 4)
        events = await session.finish()
        totals = session.totals
        assert (totals.received_samples, totals.dropped_samples) == (bad_at, len(samples) - bad_at)
        return events

    assert asyncio.run(run()) == transcribe(engine, to_bytes(samples[:bad_at], audio), audio)


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_a_failing_model_leaves_all_notes_ended(end: str) -> None:
    audio = pcm(FAKE_RATE_HZ)
    raw = to_bytes(play([(69, 0.1, 3.0)], 2.0, FAKE_RATE_HZ), audio)

    async def run() -> list[Event]:
        fake = FakeTranscriber()
        with Engine(fake) as engine:
            session = TranscriptionSession(engine, audio, StreamOptions())
            events = await session.push(raw[: len(raw) // 2])
            fake.fail_next_batch = True
            with pytest.raises(EngineError, match="failing batch"):
                await session.push(raw[len(raw) // 2 :])
            events += session.abort() if end == "abort" else await session.finish()
            other = TranscriptionSession(engine, audio, StreamOptions())
            assert len(await other.push(raw) + await other.finish()) == 2
            return events

    assert [pitch for pitch, _, _ in found(asyncio.run(run()))] == [69]


def test_abort_ends_open_notes_and_is_idempotent(engine: Engine) -> None:
    audio = pcm()

    async def run() -> None:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(to_bytes(play([(69, 0.1, 9.0)], 1.0, 44_100), audio))
        assert [e.kind for e in events] == ["note_on"]
        (off,) = session.abort()
        assert off.kind == "note_off"
        assert off.time_s > events[0].time_s
        assert session.state is SessionState.ABORTED
        assert session.abort() == []
        assert len(session.notes) == 1
        with pytest.raises(SessionStateError, match="was aborted"):
            await session.finish()
        with pytest.raises(SessionStateError, match="is aborted"):
            await session.push(b"")

    asyncio.run(run())


def test_a_cancelled_push_leaves_a_session_that_can_be_ended(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play([(69, 0.1, 9.0)], 3.0, 44_100), audio)

    async def run() -> list[Event]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(raw[: len(raw) // 3])
        task = asyncio.create_task(session.push(raw[len(raw) // 3 :]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.state is SessionState.FAILED
        return events + session.abort()

    assert len(found(asyncio.run(run()))) == 1


def test_concurrent_pushes_are_taken_in_order(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play(MELODY, 1.5, 44_100), audio)
    parts = [raw[i : i + len(raw) // 3] for i in range(0, len(raw), len(raw) // 3)]

    async def run() -> list[Event]:
        session = TranscriptionSession(engine, audio, StreamOptions())
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(session.push(part)) for part in parts[:3]]
        return [e for push in pushes for e in push.result()] + await session.finish()

    assert asyncio.run(run()) == transcribe(engine, raw, audio)


def test_too_many_notes_end_the_audio_but_lose_no_event(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play(MELODY, 1.5, 44_100), audio)

    async def run() -> list[Event]:
        session = TranscriptionSession(engine, audio, StreamOptions(), max_notes=2)
        with pytest.raises(TooManyNotesError, match="more than 2 notes"):
            await session.push(raw)
        return await session.finish()

    assert asyncio.run(run()) == transcribe(engine, raw, audio)
