"""``python -m tests.fuzz.api SCHEMATHESIS``: its requests, made from the OpenAPI document.

A real server on a model of pure tones is asked; the exit status is that of the command.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.service.servers import TONES, server_starter


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.api", description=__doc__)
    parser.add_argument("schemathesis", type=Path, help="the command st")
    parser.add_argument("--examples", type=int, default=1000, help="of each operation")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
        server = start(*TONES)
        command = [
            options.schemathesis,
            "run",
            f"{server.url}/openapi.json",
            "--continue-on-failure",
        ]
        # A form that fits the schema may still hold no audio, which is a problem of its own.
        command += ["--exclude-checks", "positive_data_acceptance"]
        command += ["--max-examples", str(options.examples)]
        status = subprocess.run(command, cwd=folder, check=False).returncode
        server.terminate()
    return status


if __name__ == "__main__":
    sys.exit(main())
