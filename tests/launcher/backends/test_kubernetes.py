from pathlib import Path

import pytest
import yaml

from autoconf_launch.launcher import cli
from autoconf_launch.launcher.machine import pod_text

POD = "kind: Pod\nspec: {containers: [{image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}\n"


def test_a_dry_run_prints_what_would_be_made_and_asks_no_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijkl")
    Path("pod.yaml").write_text(POD)
    Path("train.py").write_text("")
    words = ["--launcher", "kubernetes", "--launcher_args", "pod.yaml", "--num_nodes", "2"]
    code = cli.main([*words, "--num_gpus", "4", "--dry-run", "train.py"])
    printed = capsys.readouterr().out
    job, service, secret = yaml.safe_load_all(printed)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (code, job["spec"]["completions"], service["kind"]) == (0, 2, "Service")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert secret["stringData"] == {"HF_TOKEN": "${HF_TOKEN}"}
    assert "hf_abc" not in printed
    assert "&id" not in printed
    assert {path.name for path in tmp_path.iterdir()} == {"pod.yaml", "train.py"}


def test_other_launchers_have_no_dry_run_of_a_plain_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    assert cli.main(["--dry-run", str(tmp_path / "train.py")]) == 2
    assert "is for a tune, but" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, None),
        ({"JOB_COMPLETION_INDEX": "3"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "This is a pod of Kubernetes"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"},
            "This is pod 3 of an Indexed Job",
        ),
    ],
)
def test_a_pod_is_found_by_its_variables(
    variables: dict[str, str], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = pod_text()
    assert (found is None) == (text is None)
    assert not text or (found or "").startswith(text)
