"""Sessions: every fault, and every way to end, leaves all notes ended."""

import asyncio

import pytest

from service.engine.engine import Engine, EngineError
from service.protocol.options import StreamOptions
from service.session.session import TranscriptionSession
from service.session.session_state import SessionStateError
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.sessions import MELODY, found, listen, pcm, to_bytes


@pytest.mark.parametrize("end", ["finish", "abort"])
async def test_a_failing_model_leaves_all_notes_ended(end: str) -> None:
    audio, fake = pcm(FAKE_RATE_HZ), FakeTranscriber()
    raw = to_bytes(play([(69, 0.1, 3.0)], 2.0, FAKE_RATE_HZ), audio)
    with Engine(fake) as engine:
        session = TranscriptionSession(engine, audio, StreamOptions())
        events = await session.push(raw[: len(raw) // 2])
        fake.fail_next_batch = True
        with pytest.raises(EngineError, match="failing batch"):
            await session.push(raw[len(raw) // 2 :])
        events += session.abort() if end == "abort" else await session.finish()
        other = TranscriptionSession(engine, audio, StreamOptions())
        assert len(await other.push(raw) + await other.finish()) == 2
    assert [pitch for pitch, _, _ in found(events)] == [69]


async def test_a_cancelled_push_leaves_a_session_that_can_only_be_ended(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play([(69, 0.1, 9.0)], 3.0, 44_100), audio)
    session = TranscriptionSession(engine, audio, StreamOptions())
    events = await session.push(raw[: len(raw) // 3])
    task = asyncio.create_task(session.push(raw[len(raw) // 3 :]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SessionStateError, match="is failed"):
        await session.push(b"")
    events += session.abort()
    assert session.abort() == []
    with pytest.raises(SessionStateError, match="was aborted"):
        await session.finish()
    assert len(found(events)) == 1


async def test_concurrent_pushes_are_taken_in_order(engine: Engine) -> None:
    audio = pcm()
    raw = to_bytes(play(MELODY, 1.5, 44_100), audio)
    parts = [raw[i : i + len(raw) // 3] for i in range(0, len(raw), len(raw) // 3)]
    session = TranscriptionSession(engine, audio, StreamOptions())
    async with asyncio.TaskGroup() as group:
        pushes = [group.create_task(session.push(part)) for part in parts]
    events = [e for push in pushes for e in push.result()] + await session.finish()
    assert events == (await asyncio.to_thread(listen, engine, raw, audio))[0]
