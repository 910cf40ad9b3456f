"""No room on the disk while an upload is spooled to it."""

import errno
import os
from tempfile import SpooledTemporaryFile

import pytest
from starlette import formparsers

from tests.service.apps import serving, sound_file


class FullDisk(SpooledTemporaryFile[bytes]):
    """Has no room for what does not stay in memory."""

    def rollover(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_reported_and_the_next_upload_that_fits_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = sound_file(kind="FLAC")
    with serving() as (client, _):
        monkeypatch.setattr(formparsers, "SpooledTemporaryFile", FullDisk)
        large = {"file": file + bytes(4 * formparsers.MultiPartParser.spool_max_size)}
        for _ in range(5):  # more than there are places
            answer = client.post("/transcribe", files=large)
            assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
            assert answer.headers["Retry-After"]
        assert 'outcome="disk_full"} 5.0' in client.get("/metrics").text
        answer = client.post("/transcribe", files={"file": file})
        assert answer.status_code == 200
