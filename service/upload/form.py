"""The form of `POST /transcribe`: a recording in the field `file`, counted and spooled to disk."""

import asyncio
import errno
from contextlib import AsyncExitStack

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.access.problems import Problem, busy
from service.protocol.faults import ErrorCode
from service.state import ServiceState

# Fields other than the file are ignored; a few small ones do no harm.
MAX_FIELDS = 8
MAX_FIELD_BYTES = 16 * 1024
MAX_RECEIVE_S = 3 * 3600.0  # for a request body, which may come as slowly as it is played
EXPECTED = "expected a multipart form with the recording in the field file"

FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "contentMediaType": "application/octet-stream",
                            "description": "an audio file, or a film with sound",
                        }
                    },
                }
            }
        },
    }
}


async def receive_file(request: Request, state: ServiceState, stack: AsyncExitStack) -> UploadFile:
    """The file of the form, spooled; it lives as long as the stack."""
    settings, loop = state.settings, asyncio.get_running_loop()
    max_bytes, patience_s = settings.max_upload_bytes, settings.idle_timeout_s
    too_large = Problem(
        ErrorCode.UPLOAD_TOO_LARGE, f"the file is larger than {max_bytes / 1024**2:g} MiB"
    )
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > max_bytes:
        raise too_large
    deadline_s, received = loop.time() + MAX_RECEIVE_S, 0
    draining = asyncio.create_task(state.draining.wait())
    stack.callback(draining.cancel)

    async def counted() -> Message:
        nonlocal received
        wait_s = min(patience_s, deadline_s - loop.time())
        receiving = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([receiving, draining], timeout=wait_s, return_when="FIRST_COMPLETED")
            if state.draining.is_set():
                detail = "the server is shutting down"
                raise busy(ErrorCode.DRAINING, detail)
            if not receiving.done():
                detail = f"no data of the upload for {patience_s:g} s"
                if wait_s < patience_s:
                    detail = f"the upload took longer than {MAX_RECEIVE_S:g} s to arrive"
                raise Problem(ErrorCode.IDLE_TIMEOUT, detail)
        finally:
            receiving.cancel()
        message = receiving.result()
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise too_large
        return message

    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(ErrorCode.BAD_UPLOAD, EXPECTED)
    bounded = Request(request.scope, counted)
    try:
        form = await stack.enter_async_context(
            bounded.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        )
    except ClientDisconnect:
        raise Problem(ErrorCode.BAD_UPLOAD, "the upload broke off") from None
    except HTTPException as error:  # the form is malformed
        raise Problem(ErrorCode.BAD_UPLOAD, error.detail) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        detail = "not enough disk space for the upload"  # other uploads may hold it
        raise busy(ErrorCode.DISK_FULL, detail) from error
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise Problem(ErrorCode.BAD_UPLOAD, EXPECTED)
    return upload
