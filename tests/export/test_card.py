"""The card and README of an export."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

import uiat
from tests.support.calls import call
from tests.support.exports import COLOUR, FAMILIES, make_run
from tests.support.runs import begin, tiny
from uiat.config_json import encode
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.export.model_card import BIBTEX
from uiat.io import write_json
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import DIGEST, file_digest

CONFIG = tiny("uiat", epochs=2)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return begin(CONFIG, tmp_path_factory.mktemp("runs") / "run")


ENTRY = {
    **{"weights": "best.safetensors", "data": "digits", "sample": "all", "exact": False, "attack": "pgd-20"},
    **{"accuracy": 0.5, "interval95": [0.352, 0.648], "n": 40, "norm": "linf", "eps": 8 / 255, "step": 2 / 255},
}
NATURAL = {**{k: v for k, v in ENTRY.items() if k not in ("norm", "eps", "step")}, "attack": "natural"}


def measured(run: RunFolder, **changes: Any) -> dict[str, Any]:
    card = read_json(run.result)
    others = [{**ENTRY, "weights": "last.safetensors", "accuracy": 0.1}, {**NATURAL, "data": "svhn", "sample": "first"}]
    entries = [{**e, DIGEST: file_digest(run.path / str(e["weights"]))} for e in (NATURAL, ENTRY, *others)]
    write_json(run.result, {**card, "evaluations": entries, **changes})
    return dict(card)


def test_the_card(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trained = measured(run)
    found = call(capsys, "export", str(run.path))
    assert found.code == 0
    out = run.path / "export"
    files, _ = found.out.splitlines()  # the other line is the command that comes next
    assert (files, found.err) == (f"{out}: model.safetensors, model.py, example.py, card.json, README.md", "")
    assert {path.name for path in out.iterdir()} == {
        "model.safetensors",
        "model.py",
        "example.py",
        "card.json",
        "README.md",
    }
    card = read_json(out / "card.json")
    assert card["data"] == {**trained["data"], "options": encode(CONFIG.data)}
    assert card["data"]["classes"] == [str(k) for k in range(10)]
    assert card["preprocessing"].items() >= {"size": [8, 8], "colour": "grey", "range": [0.0, 1.0]}.items()
    assert card["network"]["input"] == {"shape": [1, 8, 8], "range": [0.0, 1.0], "dtype": "float32"}
    assert card["network"]["parameters"] == trained["parameters"]
    assert card["network"].items() >= encode(CONFIG.model).items()
    assert card["method"] == encode(CONFIG.method)
    assert card["threat_model"] == {"norm": "linf", "eps": 0.2}
    assert [(e["attack"], e["data"], e["interval95"]) for e in card["evaluations"]] == [
        ("natural", "digits", [0.352, 0.648]),
        ("pgd-20", "digits", [0.352, 0.648]),
        ("natural", "svhn", [0.352, 0.648]),
    ]
    assert card["evaluations"][1] == {**ENTRY, DIGEST: file_digest(run.best)}
    digest = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    assert card["weights"] == {"file": "model.safetensors", "sha256": digest, "from": "best", **trained["best"]}
    assert card["training"]["seconds"] == trained["training_seconds"]
    assert card["training"]["passes"] == trained["training_passes"]
    assert (card["training"]["epochs"], card["training"]["seed"], card["training"]["finished"]) == (2, 0, True)
    assert card["exported_with"]["uiat"] == uiat.__version__
    assert (card["requires"], card["self_contained"]) == (["safetensors", "torch"], True)


def test_the_readme(run: RunFolder, tmp_path: Path) -> None:
    measured(run)
    write_folder(load_run(run.path, "best", None), tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# ResNet trained with UIAT on digits\n")
    assert "x = torch.rand(4, 1, 8, 8)" in text
    assert "| natural | – | 50.00% | 35.20% – 64.80% | 40 |" in text
    assert "| pgd-20 | Linf, 8/255 | 50.00% | 35.20% – 64.80% | 40 |" in text
    assert "| natural on svhn (first) |" in text
    assert 'AutoAttack(load(), norm="Linf", eps=0.2' in text
    assert BIBTEX in text
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        assert len(block.splitlines()) <= 10
        compile(block, "README.md", "exec")


def test_the_readme_of_a_network_that_robustbench_can_take(tmp_path: Path) -> None:
    facts = {"name": "cifar10", "classes": list("abcdefg"), "shape": [3, 32, 32], "train": 60}
    run, _ = make_run(tmp_path / "run", *FAMILIES["wrn"], data=facts)
    write_folder(load_run(run.path, "best", None), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert 'benchmark(\n    load(), dataset="cifar10", threat_model="Linf", eps=0.2, device=device' in text
    assert "AutoAttack(" not in text
    assert "It has not been evaluated" in text
    assert "leaderboards compare only ε = 8/255 in Linf and, for CIFAR-10, 0.5 in L2" in text
    small = {**facts, "shape": list(COLOUR.shape)}
    run, _ = make_run(tmp_path / "small", *FAMILIES["wrn"], data=small)
    write_folder(load_run(run.path, "best", None), tmp_path / "small-out")
    text = (tmp_path / "small-out" / "README.md").read_text()
    assert "AutoAttack(" in text
    assert "benchmark(" not in text
    height, width = COLOUR.shape[1:]
    assert f"it was trained on cifar10 at\n{height}×{width}." in text
    assert 'mode="area"' in text
    assert f"of {height}×{width} pixels" in text
    assert "its accuracy at another is unknown" in text
    svhn = {**small, "name": "svhn"}
    run, _ = make_run(tmp_path / "svhn", *FAMILIES["wrn"], data=svhn)
    write_folder(load_run(run.path, "best", None), tmp_path / "svhn-out")
    assert "`benchmark` cannot evaluate it" in (tmp_path / "svhn-out" / "README.md").read_text()


def test_the_citation_is_the_one_of_the_package() -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    for fact in re.findall(r"(?:title|doi) +=[ {]+(.*?)\}", BIBTEX):
        if not fact.startswith("Proceedings"):
            assert f'"{fact}"' in cited
    for name in re.findall(r"family-names: \"(.*)\"", cited):
        assert f"{name}, " in BIBTEX


def test_a_run_that_is_not_finished(run: RunFolder, tmp_path: Path) -> None:
    whole = load_run(run.path, "best", None)
    copy = RunFolder.create(tmp_path / "run", CONFIG)
    for name in ("best.safetensors", "last.safetensors", "metrics.jsonl"):
        (copy.path / name).write_bytes((run.path / name).read_bytes())
    loaded = load_run(copy.path, "best", None)  # its data is read again
    assert (loaded.spec, loaded.data, loaded.epoch) == (whole.spec, whole.data, whole.epoch)
    assert load_run(copy.path, "last", None).epoch["epoch"] == 2
    write_folder(loaded, tmp_path / "out")
    training = read_json(tmp_path / "out" / "card.json")["training"]
    assert (training["finished"], training["seconds"]) == (False, None)
    with copy.metrics.open("a") as metrics:
        metrics.write('{"kind": "epo')
    assert load_run(copy.path, "last", None).epoch == {}
