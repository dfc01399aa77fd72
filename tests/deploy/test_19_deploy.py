"""What lies in `deploy/` is checked by the validators of each form, and its configuration by the gateway itself."""

import configparser
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from compose_spec import PyCompose

from toolfold import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# The oldest that is still supported somewhere, and the newest that the validator knows.
KUBERNETES = ("1.30", "1.33", kubernetes_validate.latest_version())
MANIFESTS = [one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "toolfold.yaml").read_text()) if one]
BIN = Path(sys.executable).parent


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.setenv("TOOLFOLD_CI_KEY", "k" * 20)
    monkeypatch.setenv("TOOLFOLD_OPERATOR_KEY", "o" * 20)
    return Settings.load(DEPLOY / "toolfold.toml", home=tmp_path)


def test_19_the_configuration_loads_and_names_no_secret(settings: Settings) -> None:
    assert settings.warnings == ()
    assert all(caller.key.startswith("${") for caller in settings.callers)
    assert [policy.name for policy in settings.policies if policy.admin] == ["operators"]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: str(one["kind"]))
def test_19_every_manifest_fits_the_schemas_of_kubernetes(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_19_the_validator_refuses_what_kubernetes_would(settings: Settings) -> None:
    wrong = json.loads(json.dumps(MANIFESTS[0]))
    wrong["spec"]["replicas"] = "two"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_19_the_pod_outlives_its_drain_asks_the_right_probes_and_may_do_little(settings: Settings) -> None:
    pod = MANIFESTS[0]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > settings.limits.drain_s
    assert settings.limits.drain_notice_s >= container["readinessProbe"]["periodSeconds"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    allowed = {**pod["securityContext"], **container["securityContext"]}
    assert (allowed["runAsNonRoot"], allowed["readOnlyRootFilesystem"]) == (True, True)
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    given = {entry["name"] for entry in container["env"]}
    assert {"TOOLFOLD_CI_KEY", "TOOLFOLD_OPERATOR_KEY"} <= given
    [selector] = {json.dumps(one["spec"]["selector"].get("matchLabels", one["spec"]["selector"])) for one in MANIFESTS}
    assert json.loads(selector) == MANIFESTS[0]["spec"]["template"]["metadata"]["labels"]


def test_19_the_compose_file_fits_the_compose_specification(settings: Settings) -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    parsed = PyCompose.from_yaml(text)
    assert parsed.service_names() == ["postgres", "gateway-a", "gateway-b", "proxy"]
    with pytest.raises(ValueError, match="read_onli"):
        PyCompose.from_yaml(text.replace("read_only: true\n  tmpfs", "read_onli: true\n  tmpfs"))
    services = yaml.safe_load(text)["services"]
    for name in ("gateway-a", "gateway-b"):
        assert services[name]["read_only"] is True
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > settings.limits.drain_s
        for volume in services[name]["volumes"]:
            assert (DEPLOY / "compose" / volume["source"]).is_file()


def test_19_nginx_understands_the_proxys_configuration() -> None:
    file = DEPLOY / "compose" / "nginx.conf"
    done = subprocess.run(
        [BIN / "crossplane", "parse", "--strict", str(file)], capture_output=True, text=True, timeout=60, check=True
    )
    parsed = json.loads(done.stdout)
    assert (parsed["status"], parsed["errors"]) == ("ok", [])


def test_19_the_dockerfile_has_nothing_that_a_linter_objects_to_and_ends_as_nobody() -> None:
    file = DEPLOY / "Dockerfile"
    done = subprocess.run([BIN / "hadolint", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    last = file.read_text().split("\nFROM ")[-1]
    assert "\nUSER 65532:65532\n" in last
    assert "pip install" not in last


def test_19_systemd_understands_the_unit(tmp_path: Path, settings: Settings) -> None:
    file = DEPLOY / "systemd" / "toolfold.service"
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(file)
    assert float(unit["Service"]["TimeoutStopSec"]) > settings.limits.drain_s
    assert unit["Service"]["KillMode"] == "mixed"
    if verify := shutil.which("systemd-analyze"):
        # It looks whether the program is there, which on this machine lies elsewhere.
        copy = tmp_path / "toolfold.service"
        copy.write_text(file.read_text().replace("/opt/toolfold/bin/toolfold", str(BIN / "toolfold")))
        done = subprocess.run(
            [verify, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
