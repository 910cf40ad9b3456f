"""docker/serve.yaml agrees with the settings."""

import pytest
import yaml

from service.cluster import scaling as cluster_scaling
from service.settings import ClusterSettings, Settings
from tests.paths import REPOSITORY

CONFIG = REPOSITORY / "docker" / "serve.yaml"


def test_the_config_file_agrees_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (application,) = yaml.safe_load(CONFIG.read_text())["applications"]
    variables = dict(application["runtime_env"]["env_vars"])
    assert variables.pop("RELEASE")  # that it changes is what counts
    for name, value in variables.items():
        known = ClusterSettings if name.startswith("RSE_CLUSTER_") else Settings
        field = name.removeprefix("RSE_CLUSTER_").removeprefix("RSE_").lower()
        assert field in known.model_fields
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert isinstance(settings.max_sessions, int)
    ingress, model = application["deployments"]
    assert ingress["max_ongoing_requests"] == settings.max_sessions + settings.max_uploads + 64
    assert ingress["autoscaling_config"]["target_ongoing_requests"] < settings.max_sessions
    noticed_s = 2.0  # twice POLL_S of cluster/drain.py, which imports Ray
    assert ingress["graceful_shutdown_timeout_s"] > settings.drain_timeout_s + noticed_s
    policy = model["autoscaling_config"]["policy"]
    assert policy["policy_function"] == "service.cluster.scaling:StepTimePolicy"
    cluster_scaling.StepTimePolicy(**policy["policy_kwargs"])
