"""Helper processes: long computations that delay neither live streams nor the shutdown."""

import os
import signal

NICE = 10  # niceness, which gives priority to live streams


def prepare() -> None:
    """Lower the priority of this process, and ignore the signals of the service's process group.
    The service ends its helpers itself. Discard the standard error: the service does not read it,
    and the process would wait forever once its pipe is full."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(max(0, NICE - os.nice(0)))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with open(os.devnull, "wb") as devnull:
        os.dup2(devnull.fileno(), 2)
