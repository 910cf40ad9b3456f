"""The images and manifests, checked without an engine: names, limits, files, secrets."""

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.app import create_app
from service.settings import Settings
from tests.paths import REPOSITORY

DOCKER = REPOSITORY / "docker"
DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "Dockerfile.cuda"]
MANIFESTS = [DOCKER / "compose.yaml", DOCKER / "kubernetes.yaml", *DOCKERFILES]


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if "==" in line)
    return {name.lower().replace("_", "-"): version.split()[0] for name, version in pins}


def kubernetes(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text(encoding="utf-8"))
    (found,) = [document for document in documents if document["kind"] == kind]
    return dict(found)


def container() -> tuple[dict[str, Any], dict[str, str]]:
    """That of the deployment's pods, and its environment."""
    (found,) = kubernetes("Deployment")["spec"]["template"]["spec"]["containers"]
    return found, {entry["name"]: entry["value"] for entry in found["env"]}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_holds_no_secret_and_runs_the_service_as_no_root(path: Path) -> None:
    steps = instructions(path)
    for name, rest in steps:
        if name == "FROM":
            assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+[a-z0-9.-]*( AS \w+)?", rest), rest
        if name in ("ENV", "ARG"):
            assert not re.search(r"(?i)(secret|password|token|keys?)=\S", rest)
    last_stage = steps[max(n for n, (name, _) in enumerate(steps) if name == "FROM") :]
    (user,) = [rest for name, rest in last_stage if name == "USER"]
    assert int(user) > 0
    (command,) = [rest for name, rest in last_stage if name == "CMD"]
    assert json.loads(command) == ["python", "-m", "service"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_an_image_copies_is_there_and_sent_to_the_engine(path: Path) -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line[1:] for line in lines if line.startswith("!")]
    for name, rest in instructions(path):
        if name != "COPY" or rest.startswith("--from"):
            continue
        *sources, _ = shlex.split(rest)
        for source in sources:
            assert (REPOSITORY / source).exists(), source
            assert any(fnmatch(source, pattern) for pattern in let_in), source


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_settings_that_are_named_exist(path: Path) -> None:
    named = set(re.findall(r"\bRSE_([A-Z_]+)\b", path.read_text(encoding="utf-8")))
    assert named
    assert named <= {name.upper() for name in Settings.model_fields}


def locked() -> dict[str, str]:
    """The versions of the lock, each with its hashes."""
    text = (DOCKER / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}\b", text, re.M))


def test_the_lock_has_all_that_the_service_needs() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[><=;\[ ]", entry)[0].lower() for entry in project["dependencies"]}
    assert needed <= set(locked())
    pins = constraints()
    for name, version in locked().items():
        assert version.split("+")[0] == pins[name], f"{name}: run `make lock`"


def test_licences_of_all_that_is_locked_are_listed() -> None:
    listed = (DOCKER / "LICENSES.md").read_text(encoding="utf-8").lower().replace("_", "-")
    for name in locked():
        assert f"| {name} " in listed, f"{name}: run `make lock`"
    assert "unknown" not in listed


def test_cuda_image_has_the_torch_of_the_lock() -> None:
    (version,) = [
        rest.partition("=")[2]
        for name, rest in instructions(DOCKER / "Dockerfile.cuda")
        if name == "ARG" and rest.startswith("TORCH_VERSION")
    ]
    assert version == constraints()["torch"]


def test_compose() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    for service in services.values():
        assert re.search(r":v?\d+\.\d+", service["image"]), "an image without a version"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        for source in (volume.split(":")[0] for volume in service.get("volumes", [])):
            assert (DOCKER / source).is_file() or source in compose["volumes"]
        assert service["mem_limit"]
        assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    for name in ("cpu", "cuda"):
        service = services[name]
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert float(service["stop_grace_period"].rstrip("s")) > Settings().drain_timeout_s
    (timeout,) = re.findall(r"docker run --stop-timeout (\d+) ", (DOCKER / "README.md").read_text())
    assert float(timeout) > Settings().drain_timeout_s


def test_kubernetes_gives_a_drain_its_time() -> None:
    pod = kubernetes("Deployment")["spec"]["template"]["spec"]
    each, environment = container()
    command = each["lifecycle"]["preStop"]["exec"]["command"]
    (pause_s,) = re.findall(r"sleep\((\d+)\)", command[-1])
    drain_s = float(environment["RSE_DRAIN_TIMEOUT_S"])
    assert pod["terminationGracePeriodSeconds"] > int(pause_s) + drain_s
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert each["securityContext"]["readOnlyRootFilesystem"] is True
    liveness = each["livenessProbe"]
    # A worker that hangs is replaced by the service itself before the pod is killed for it.
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_kubernetes_lets_clients_in_by_tls_alone() -> None:
    ingress = kubernetes("Ingress")["spec"]
    (rule,), (tls,) = ingress["rules"], ingress["tls"]
    _, environment = container()
    assert tls["hosts"] == [rule["host"]] == [environment["RSE_ALLOWED_HOSTS"]]
    text = (DOCKER / "kubernetes.yaml").read_text(encoding="utf-8")
    assert f"secret tls {tls['secretName']} " in text
    (path,) = rule["http"]["paths"]
    service = kubernetes("Service")
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    ports = [port["name"] for port in service["spec"]["ports"]]
    assert path["backend"]["service"]["port"]["name"] in ports
    policy = kubernetes("NetworkPolicy")["spec"]
    labels = kubernetes("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert policy["podSelector"]["matchLabels"].items() <= labels
    assert policy["egress"] == []
    (entry,) = policy["ingress"]
    assert entry["ports"][0]["port"] in [port["name"] for port in container()[0]["ports"]]


def test_kubernetes_scales_by_sessions() -> None:
    scaler = kubernetes("HorizontalPodAutoscaler")["spec"]
    deployment = kubernetes("Deployment")
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    (metric,) = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "rse_sessions"
    assert "RSE_MAX_SESSIONS" not in container()[1]  # each pod measures what it carries
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget"):
        selector = kubernetes(kind)["spec"]["selector"]
        assert (selector.get("matchLabels") or selector).items() <= labels


def test_kubernetes_scrapes_the_pods_with_a_key() -> None:
    monitor = kubernetes("PodMonitor")["spec"]
    pod = kubernetes("Deployment")["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert "annotations" not in pod["metadata"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in container()[0]["ports"]]
    assert endpoint["path"] in create_app(Settings()).openapi()["paths"]
    secret = endpoint["authorization"]["credentials"]
    text = (DOCKER / "kubernetes.yaml").read_text(encoding="utf-8")
    assert f"secret generic {secret['name']} --from-file={secret['key']}=" in text


def test_prometheus_asks_where_the_metrics_are() -> None:
    config = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job.get("metrics_path", "/metrics") in create_app(Settings()).openapi()["paths"]
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    secret = Path(job["authorization"]["credentials_file"]).name
    assert secret in compose["services"]["prometheus"]["secrets"]
