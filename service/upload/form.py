"""The form of `POST /transcribe`: a recording in the field `file`, counted and spooled to disk."""

import asyncio
from contextlib import AsyncExitStack

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.protocol.faults import ErrorCode, ProtocolError
from service.state import ServiceState
from service.upload.answer import UploadLog

# Fields other than the file are ignored; a few small ones do no harm.
MAX_FIELDS = 8
MAX_FIELD_BYTES = 16 * 1024
# A request body may come as slowly as it is played, and no more slowly.
MIN_BYTES_PER_S = 2000
EXPECTED = "expected a multipart form with the recording in the field file"


async def receive_file(
    request: Request, state: ServiceState, stack: AsyncExitStack, log: UploadLog
) -> UploadFile:
    """The file of the form, spooled; it lives as long as the stack."""
    settings, loop = state.settings, asyncio.get_running_loop()
    max_bytes, patience_s = settings.max_upload_bytes, settings.idle_timeout_s
    too_large = ProtocolError(
        ErrorCode.UPLOAD_TOO_LARGE, f"the file is larger than {max_bytes / 1024**2:g} MiB"
    )
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > max_bytes:
        raise too_large
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ProtocolError(ErrorCode.BAD_UPLOAD, EXPECTED)
    began_s = loop.time()
    draining = asyncio.create_task(state.draining.wait())
    stack.callback(draining.cancel)

    async def counted() -> Message:
        receiving = asyncio.ensure_future(request.receive())
        try:
            coming = [receiving, draining]
            await asyncio.wait(coming, timeout=patience_s, return_when="FIRST_COMPLETED")
            if state.draining.is_set():
                raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
            if not receiving.done():
                detail = f"no data of the upload for {patience_s:g} s"
                raise ProtocolError(ErrorCode.IDLE_TIMEOUT, detail)
        finally:
            receiving.cancel()
        message = receiving.result()
        log.received += len(message.get("body", b""))
        if log.received > max_bytes:
            raise too_large
        if log.received < MIN_BYTES_PER_S * (loop.time() - began_s - patience_s):
            detail = f"the upload came more slowly than {MIN_BYTES_PER_S / 1000:g} kB/s"
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, detail)
        return message

    bounded = Request(request.scope, counted)
    try:
        form = await stack.enter_async_context(
            bounded.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        )
    except ClientDisconnect:
        raise ProtocolError(ErrorCode.BAD_UPLOAD, "the upload broke off") from None
    except HTTPException as error:  # the form is malformed
        raise ProtocolError(ErrorCode.BAD_UPLOAD, error.detail) from None
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise ProtocolError(ErrorCode.BAD_UPLOAD, EXPECTED)
    return upload
