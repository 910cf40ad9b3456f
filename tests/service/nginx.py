"""Real nginx as a proxy of real servers."""

import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import require_system
from tests.service.servers import reserved_port, wait_for_response


@contextmanager
def nginx(
    configuration: Callable[[int], str], folder: Path, ready: str = "/readyz"
) -> Iterator[str]:
    """Start nginx with a configuration for a port and yield its address. `ready` is a path that
    responds with status 200 once nginx serves."""
    program = require_system("nginx")
    reservation, port = reserved_port()
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(exist_ok=True)
    file, log = folder / "nginx.conf", folder / "log"
    file.write_text(configuration(port), encoding="utf-8")
    directives = "daemon off;"
    if os.geteuid() == 0:  # by default its workers are user nobody, who cannot read this folder
        directives += f" user {pwd.getpwuid(0).pw_name};"
    command = [program, "-p", f"{folder}/", "-c", str(file), "-e", "stderr", "-g", directives]
    with reservation, log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_for_response(f"{url}{ready}", process, log)
            yield url
        finally:
            process.terminate()
            process.wait(60)
