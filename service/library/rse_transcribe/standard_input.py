"""Standard input of the command, which may be a pipe from a program that records."""

import os
import signal
import sys
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from threading import Lock, Thread
from typing import Any, BinaryIO, cast

SPOOLED_BYTES = 1 << 26  # maximum size of a pipe's content in memory; larger content is on disk
_BLOCK_BYTES = 1 << 16
_LAST_BLOCKS_S = 1.0  # maximum time after Ctrl-C in which the recorder sends its last blocks
_CHECK_S = 0.1


class StandardInput:
    """Standard input from a file or a pipe.

    A pipe holds less than a second of audio, and the model takes seconds to load. So the content is
    copied to a temporary file from the start. Ctrl-C ends the input, because it also stops the
    program that records, such as `arecord`. A second Ctrl-C, or one before any data, aborts.
    """

    def __init__(self) -> None:
        """Start to copy. Raises OSError if standard input is closed."""
        if sys.stdin is None:
            raise OSError("standard input is closed")
        self._source: Any = sys.stdin.buffer
        self._is_file = self._source.seekable()
        self._has_data = self._interrupted = self._ended = False
        self._error: OSError | None = None
        self._lock = Lock()
        if self._is_file:
            return
        self._copy = SpooledTemporaryFile(SPOOLED_BYTES)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, self._interrupt)

    def wait(self) -> BinaryIO:
        """Wait for the end of the input and return its content. Raises OSError if it cannot be
        read or copied."""
        if self._is_file:
            return cast(BinaryIO, self._source)
        while self._thread.is_alive() and not self._interrupted:
            self._thread.join(_CHECK_S)
        self._thread.join(_LAST_BLOCKS_S)
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._error is not None:
            raise self._error
        with self._lock:
            self._ended = True
        self._copy.seek(0)
        return cast(BinaryIO, self._copy)

    def close(self) -> None:
        """Delete the copy."""
        if not self._is_file:
            with self._lock:
                self._ended = True
                self._copy.close()

    def _run(self) -> None:
        # A daemon thread must not hold the lock of a buffered file when Python exits.
        descriptor = self._source.fileno()
        try:
            while data := os.read(descriptor, _BLOCK_BYTES):
                with self._lock:
                    if self._ended:
                        return
                    self._copy.write(data)
                self._has_data = True
        except OSError as error:
            self._error = error

    def _interrupt(self, *_: object) -> None:
        if self._interrupted or not self._has_data:
            raise KeyboardInterrupt
        self._interrupted = True
