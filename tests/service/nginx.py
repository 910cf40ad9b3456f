"""Real nginx with docker/nginx.conf, as a proxy of real servers."""

import os
import pwd
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import require_system
from tests.paths import REPOSITORY
from tests.service.servers import RunningServer, reserved_port, wait_for_response


def configuration(ports: Sequence[int], listen: int) -> str:
    """Return docker/nginx.conf with other addresses, and with the rewrite of the path /music/."""
    text = (REPOSITORY / "docker" / "nginx.conf").read_text(encoding="utf-8")
    pattern = r"( +server 127\.0\.0\.1:)8001( .*;\n) +server 127\.0\.0\.1:8002 .*;\n"

    def server_lines(match: re.Match[str]) -> str:
        return "".join(f"{match[1]}{port}{match[2]}" for port in ports)

    text, groups = re.subn(pattern, server_lines, text)
    text, listens = re.subn(r"listen 127\.0\.0\.1:8000;", f"listen 127.0.0.1:{listen};", text)
    text, rewrites = re.subn(r"# (rewrite .*;)", r"\1", text)
    assert (groups, listens, rewrites) == (2, 1, 1)
    return text


@contextmanager
def nginx(
    servers: Sequence[RunningServer], folder: Path, edit: Callable[[str], str] = str
) -> Iterator[str]:
    """Start nginx in front of the servers and yield its address. ``edit`` may change the text of
    the configuration."""
    program = require_system("nginx")
    reservation, port = reserved_port()
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(exist_ok=True)
    file, log = folder / "nginx.conf", folder / "log"
    text = configuration([server.port for server in servers], port)
    file.write_text(edit(text), encoding="utf-8")
    directives = "daemon off;"
    if os.geteuid() == 0:  # by default its workers are user nobody, who cannot read this folder
        directives += f" user {pwd.getpwuid(0).pw_name};"
    command = [program, "-p", f"{folder}/", "-c", str(file), "-e", "stderr", "-g", directives]
    with reservation, log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_for_response(f"{url}/readyz", process, log)
            yield url
        finally:
            process.terminate()
            process.wait(60)
