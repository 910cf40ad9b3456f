"""Tests of the container images and manifests, without a container engine."""

import re
import shlex
import tomllib
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from service.settings import Settings
from tests.paths import REPOSITORY

DOCKER = REPOSITORY / "docker"
DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "Dockerfile.cuda"]
MANIFESTS = [DOCKER / "compose.yaml", DOCKER / "kubernetes.yaml", *DOCKERFILES]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def constraints() -> dict[str, str]:
    pins = re.findall(r"^([\w.-]+)==(\S+)", read(REPOSITORY / "constraints.txt"), re.M)
    return {name.lower().replace("_", "-"): version for name, version in pins}


def locked_versions() -> dict[str, str]:
    """Return the versions of the packages with hashes in the lock file."""
    pattern = r"^([a-z0-9.-]+)==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}\b"
    return dict(re.findall(pattern, read(DOCKER / "requirements.lock"), re.M))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_copied_files_exist_and_are_not_ignored(path: Path) -> None:
    lines = read(REPOSITORY / ".dockerignore").splitlines()
    included = [line[1:] for line in lines if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.*)$", read(path), re.M)
    assert copied
    for source in (source for line in copied for source in shlex.split(line)[:-1]):
        assert (REPOSITORY / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in included), source


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_all_named_settings_exist(path: Path) -> None:
    names = set(re.findall(r"\bRSE_([A-Z_]+)\b", read(path)))
    assert names
    assert names <= {name.upper() for name in Settings.model_fields}


def test_the_lock_file_has_all_dependencies() -> None:
    project = tomllib.loads(read(REPOSITORY / "pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    required, optional = (
        {re.split(r"[><=;\[ ]", entry)[0].lower().replace("_", "-") for entry in entries}
        for entries in ([*project["dependencies"], *extras["score"]], chain(*extras.values()))
    )
    pins = constraints()
    assert required <= set(locked_versions())
    assert optional - {"rse-transcribe"} <= set(pins)
    licences = read(DOCKER / "LICENSES.md").lower().replace("_", "-")
    for name, version in locked_versions().items():
        assert version.split("+")[0] == pins[name], f"{name}: run `make lock`"
        assert f"| {name} " in licences, f"{name}: run `make lock`"
    assert f"TORCH_VERSION={pins['torch']}\n" in read(DOCKER / "Dockerfile.cuda")


def test_kubernetes_accepts_the_manifests() -> None:
    validator = kubernetes_validate.latest_version()
    for document in yaml.safe_load_all(read(DOCKER / "kubernetes.yaml")):
        if document["kind"] != "PodMonitor":  # defined by the Prometheus operator
            kubernetes_validate.validate(document, validator, strict=True)


def test_stop_timeouts_exceed_the_drain_timeout() -> None:
    drain_s = Settings().drain_timeout_s
    services = yaml.safe_load(read(DOCKER / "compose.yaml"))["services"]
    for name in ("cpu", "cuda"):
        assert float(services[name]["stop_grace_period"].rstrip("s")) > drain_s
    (timeout,) = re.findall(r"docker run --stop-timeout (\d+) ", read(DOCKER / "README.md"))
    assert float(timeout) > drain_s
    documents = yaml.safe_load_all(read(DOCKER / "kubernetes.yaml"))
    (pod,) = [d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"]
    (container,) = pod["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    (pause_s,) = re.findall(r"sleep\((\d+)\)", str(container["lifecycle"]["preStop"]))
    required_s = int(pause_s) + float(environment["RSE_DRAIN_TIMEOUT_S"])
    assert pod["terminationGracePeriodSeconds"] > required_s


def test_keys_are_in_a_mounted_folder_that_git_ignores() -> None:
    """A file that is mounted itself would not change in the container when an editor saves it."""
    service = yaml.safe_load(read(DOCKER / "compose.yaml"))["services"]["cpu"]
    (volume,) = service["volumes"]
    source, target, _ = volume.split(":")
    assert service["environment"]["RSE_KEYS_FILE"] == f"{target}/keys"
    assert f"/docker/{source.removeprefix('./')}/" in read(REPOSITORY / ".gitignore").splitlines()
    assert f'"$PWD/docker/{source.removeprefix("./")}:{target}:ro"' in read(DOCKER / "README.md")
