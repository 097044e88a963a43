"""What `--hub-card` adds to an export."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import uiat
from tests.export.test_card import ENTRY, NATURAL
from tests.support.calls import call, stopped
from tests.support.exports import FAMILIES, configure, make_run
from uiat.config_json import to_json
from uiat.io import write_json
from uiat.runs.run_folder import RunFolder, read_json

EVALUATIONS = [NATURAL, {**ENTRY, "steps": 20}, {**ENTRY, "attack": "autoattack", "version": "standard"}]
PLAIN = {"model.safetensors", "model.py", "example.py", "card.json", "README.md"}


def exported(run: RunFolder, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[Path, dict[str, Any], str]:
    """Return the folder, the metadata and the text of the model card."""
    pytest.importorskip("huggingface_hub")
    parse = pytest.importorskip("yaml").safe_load
    assert call(capsys, "export", str(run.path), "--hub-card", *args).code == 0
    text = (run.path / "export" / "README.md").read_text()
    _, metadata, body = text.split("---\n", 2)
    return run.path / "export", parse(metadata), body


def test_the_model_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"versions": {"uiat": "9.9", "torch": "8.8"}, "git_commit": "abcdef"}
    facts: dict[str, Any] = {"training_seconds": 3.0, "best": {"epoch": 2}, "environment": environment}
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"], evaluations=EVALUATIONS, **facts)
    out, metadata, body = exported(run, capsys, "--license", "cc-by-4.0")
    assert {path.name for path in out.iterdir()} == {*PLAIN, "config.json"}
    assert metadata["license"] == "cc-by-4.0"
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("uiat", "image-classification")
    assert {"uiat", "linf", "adversarial-robustness"} <= set(metadata["tags"])
    assert "datasets" not in metadata  # digits has no name there
    (index,) = metadata["model-index"]
    (result,) = index["results"]
    assert result["dataset"]["name"] == "digits"
    assert [metric["value"] for metric in result["metrics"]] == [0.5] * 3
    assert "under pgd-20 (Linf, ε = 8/255), 95 % interval 35.20% to 64.80%, 40" in result["metrics"][1]["name"]
    assert "| pgd-20 | Linf, 8/255, 20 steps of 2/255 | 50.00% | 35.20% – 64.80% | 40 |" in body
    assert "| autoattack | Linf, 8/255, standard version | 50.00% | 35.20% – 64.80% | 40 |" in body
    for row in (
        "| method | UIAT, lam 1.0, attack: PGD (eps 0.2, step 0.05, steps 2",
        "| seed | 0 |",
        "| commit of uiat | abcdef |",
    ):
        assert row in body
    assert "| versions | uiat 9.9, torch 8.8 |" in body
    assert "| weights | best, of epoch 2 |" in body
    assert "## Licence\n\nThe weights: cc-by-4.0." in body
    blocks = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    assert 'uiat.load("owner/name")' in blocks[0]
    assert "from model import load" in blocks[1]


def test_the_package_reads_it_as_a_model_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = pytest.importorskip("huggingface_hub")
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"], evaluations=EVALUATIONS)
    out, _, _ = exported(run, capsys)
    data = hub.ModelCard.load(out / "README.md").data
    assert [result.metric_value for result in data.eval_results] == [0.5] * 3
    assert {result.task_type for result in data.eval_results} == {"image-classification"}


def test_a_network_that_was_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"name": "cifar10", "classes": list("abcdefg"), "shape": [3, 16, 16], "train": 60}
    run, _ = make_run(tmp_path / "run", *FAMILIES["wrn"], data=facts)
    _, metadata, body = exported(run, capsys)
    assert metadata["datasets"] == ["uoft-cs/cifar10"]
    assert "model-index" not in metadata
    assert "It has not been evaluated" in body


def test_an_export_without_it_takes_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"])
    out, _, _ = exported(run, capsys)
    assert call(capsys, "export", str(run.path)).code == 0
    assert {path.name for path in out.iterdir()} == PLAIN
    assert (out / "README.md").read_text().startswith("# ResNet")


def test_custom_paths_are_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, spec = FAMILIES["resnet"]
    run, _ = make_run(tmp_path / "run", model, spec)
    config = configure(model)
    config = replace(config, data=replace(config.data, name="/home/me/secret/photos", test="/home/me/secret/test.npz"))
    result = read_json(run.result)
    entries = [{**NATURAL, "data": "/home/me/secret/photos"}]
    result.update(
        config=to_json(config), data={**result["data"], "name": "/home/me/secret/photos"}, evaluations=entries
    )
    write_json(run.result, result)
    write_json(run.config, to_json(config))
    out, metadata, _ = exported(run, capsys)
    assert metadata["model-index"][0]["results"][0]["dataset"]["name"] == "photos"
    for name in ("card.json", "config.json", "README.md"):
        assert "secret" not in (out / name).read_text()
        assert "photos" in (out / name).read_text()
    uiat.load(out)


def test_without_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"])
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install huggingface_hub" in stopped(capsys, "export", str(run.path), "--hub-card")
    assert not (run.path / "export").exists()
    assert call(capsys, "export", str(run.path)).code == 0
