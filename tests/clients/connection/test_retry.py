"""When another attempt is made, and when not."""

from itertools import count

import pytest

from clients.connection.retry import Retry


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("give_up_s", [10.0, None])
def test_pauses_follow_each_other_until_something_was_heard(give_up_s: float | None) -> None:
    retry = Retry(give_up_s, lambda: map(float, count()), Clock())
    away = {"connected": False, "fruitful": False, "audio_ended": False}
    assert [retry.after(**away) for _ in range(3)] == [0, 1, 2]
    assert retry.after(connected=True, fruitful=True, audio_ended=False) == 0
    assert retry.after(**away) == 1


def test_an_outage_is_given_up_after_a_time_and_a_connection_ends_it() -> None:
    clock = Clock()
    retry = Retry(10.0, lambda: map(float, count()), clock)
    for clock.now_s, connected in [(0.0, False), (9.0, False), (12.0, True), (21.0, False)]:
        assert retry.after(connected=connected, fruitful=connected, audio_ended=True) is not None
    clock.now_s = 23.0
    assert retry.after(connected=False, fruitful=False, audio_ended=False) is None


def test_without_a_limit_only_the_end_of_the_audio_ends_the_waiting() -> None:
    clock = Clock()
    retry = Retry(None, lambda: map(float, count()), clock)
    for clock.now_s in (0.0, 1e6):
        assert retry.after(connected=False, fruitful=False, audio_ended=False) is not None
    assert retry.after(connected=True, fruitful=True, audio_ended=True) is not None
    assert retry.after(connected=False, fruitful=False, audio_ended=True) is None
