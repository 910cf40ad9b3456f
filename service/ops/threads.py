"""Threads that the end of the event loop does not wait for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

ResultT = TypeVar("ResultT")


def start_thread(work: Callable[[], ResultT], name: str) -> asyncio.Future[ResultT]:
    """Runs `work` in a thread that, unlike `asyncio.to_thread`, does not delay the loop's end.

    A result that arrives after the future was cancelled is dropped.
    """
    result: Future[ResultT] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(result)
