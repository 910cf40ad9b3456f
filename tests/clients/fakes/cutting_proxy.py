"""A way to the service that breaks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Passes TCP connections on to a port of this machine, and breaks them.

    Args:
        port: of the service.
        cuts: bytes from the client after which the first, the second ... connection breaks; the
            connections after those hold.
    """

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._port = port
        self._cuts = list(cuts)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """The address to connect to instead."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _connection(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        left = self._cuts.pop(0) if self._cuts else None
        service, to_service = await asyncio.open_connection("127.0.0.1", self._port)
        answers = asyncio.create_task(_pass(service, to_client))
        try:
            while (data := await client.read(2_000)) and (left is None or left > 0):
                to_service.write(data)
                await to_service.drain()
                left = None if left is None else left - len(data)
        except ConnectionError:
            pass
        finally:
            if left is not None:
                answers.cancel()
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(answers, return_exceptions=True)
            to_client.transport.abort()
            to_service.transport.abort()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(2_000):
            sink.write(data)
            await sink.drain()
        sink.close()
