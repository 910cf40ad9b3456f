"""Writes docker/requirements.lock: what the service needs, each file by its hash (`make lock`).

pip itself resolves, under constraints.txt, for the Python and the platform it runs on: those of the
image. The files come from whatever indexes pip is set up with.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
LOCK = REPOSITORY / "docker" / "requirements.lock"
# The package itself is built in the image, without fetching a build system that nobody locked.
BUILD = ["setuptools>=77"]
HEADER = f"""\
# By `make lock`, for CPython {sys.version_info.major}.{sys.version_info.minor}, Linux, x86-64.
# torch is the build for processors; its index is given to the image's build as TORCH_INDEX_URL.
"""


def resolve(requirements: list[str]) -> list[dict[str, Any]]:
    """What pip would install into an empty environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", "--constraint", "constraints.txt"]
    answer = subprocess.run(
        [*command, *requirements], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    installs: list[dict[str, Any]] = json.loads(answer.stdout)["install"]
    return installs


def line(install: dict[str, Any]) -> str:
    """One requirement, without the place that its file came from."""
    name = install["metadata"]["name"].lower().replace("_", "-")
    digest = install["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name}=={install['metadata']['version']} --hash=sha256:{digest}\n"


def main() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    installs = resolve(project["project"]["dependencies"] + BUILD)
    LOCK.write_text(HEADER + "".join(sorted(map(line, installs))), encoding="utf-8")


if __name__ == "__main__":
    main()
