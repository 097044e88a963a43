"""From a run to the Hub and back, with a stand-in for the Hub; every failure is one error message."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import uiat
from tests.cli.test_predict import predicted
from tests.support.calls import call, missing_facts, refused, stopped
from tests.support.data_files import picture
from tests.support.documents import blocks
from tests.support.exports import FAMILIES, GREY, images, make_run
from tests.support.hub import TOKEN, StandIn, stand_in
from tests.support.processes import ROOT
from tests.support.runs import TINY
from uiat.cli import main
from uiat.engine.setup import weights_at
from uiat.errors import UserError
from uiat.runs.hub import is_name
from uiat.runs.run_folder import RunFolder, read_json

FILES = {"model.safetensors", "model.py", "example.py", "card.json", "config.json", "README.md"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", *FAMILIES["resnet"])[0]


def test_there_and_back(run: RunFolder, hub: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "push", str(run.path), "owner/name")
    assert found.code == 0, found.err
    assert found.out.splitlines()[:2] == [f"{hub.address}/owner/name", 'model = uiat.load("owner/name")']
    assert found.out.endswith("next: uiat evaluate owner/name\n")
    assert "no accuracies" in found.err
    assert set(hub.files("owner/name")) == FILES
    assert b'model = uiat.load("owner/name")' in hub.files("owner/name")["README.md"]
    x = images(GREY)
    model = uiat.load("owner/name")
    assert not model.training
    assert torch.equal(model(x), uiat.load(run.path)(x))
    fetched = {line.rpartition("/")[2] for line in hub.calls if line.startswith("GET") and "/resolve/" in line}
    assert fetched == {"config.json", "model.safetensors"}  # no code is even downloaded


def test_a_later_push_takes_the_place_of_an_earlier(
    run: RunFolder, hub: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert call(capsys, "export", str(run.path), "--hub-card", "--out", out).code == 0
    Path(out, "notes.txt").write_text("mine")
    Path(out, "model.onnx").write_text("a network")
    assert call(capsys, "push", out, "owner/name", "--message", "first").code == 0
    assert set(hub.files("owner/name")) == {*FILES, "model.onnx"}
    assert call(capsys, "push", str(run.path), "owner/name", "--weights", "last").code == 0
    assert set(hub.files("owner/name")) == FILES
    x, (_, first, last) = images(GREY), hub.shas("owner/name")
    best, newest = uiat.load(run.path)(x), uiat.load(run.path, weights="last")(x)
    assert not torch.equal(best, newest)
    assert torch.equal(uiat.load("owner/name", revision=first)(x), best)
    assert torch.equal(uiat.load("owner/name")(x), newest)
    assert torch.equal(uiat.load("owner/name", revision=last)(x), newest)


def test_the_same_accuracies(run: RunFolder, hub: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--n", "40", "--attacks", "natural", "fgsm", "--eps", "0.02", "--json"]
    assert call(capsys, "push", str(run.path), "owner/name").code == 0
    assert call(capsys, "evaluate", "owner/name", *flags, "hub.json").code == 0
    assert call(capsys, "evaluate", str(run.path), *flags, "run.json").code == 0
    found, expected = read_json(Path("hub.json"))["attacks"], read_json(Path("run.json"))["attacks"]
    for name in ("natural", "fgsm"):
        assert {**found[name], "seconds": 0} == {**expected[name], "seconds": 0}
    assert 0 < found["natural"]["accuracy"] < 1  # else the test could not detect a difference


def test_the_same_predictions(run: RunFolder, hub: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    picture(0, 0).save("photo.png")
    assert call(capsys, "push", str(run.path), "owner/name").code == 0
    expected = predicted(capsys, str(run.path), "photo.png", "--radius", "0.1")
    assert (
        predicted(capsys, "owner/name", "photo.png", "--radius", "0.1", "--norm", "linf")["images"]
        == expected["images"]
    )
    assert "`uiat predict owner/name photo.jpg`" in hub.files("owner/name")["README.md"].decode()


def test_private_models_are_for_those_who_may_read_them(
    run: RunFolder, hub: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "push", str(run.path), "owner/name", "--private").code == 0
    assert hub.private == {"owner/name"}
    uiat.load("owner/name")
    monkeypatch.delenv("HF_TOKEN")
    Path("cache").rename("old cache")
    with pytest.raises(UserError, match=r"owner/name .*Hub"):
        uiat.load("owner/name")


def test_pushing_without_permission(
    run: RunFolder, hub: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no write access to other/name" in refused(capsys, "push", str(run.path), "other/name")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "the Hub rejects the token" in refused(capsys, "push", str(run.path), "owner/name")
    monkeypatch.delenv("HF_TOKEN")
    assert "needs a Hub token" in refused(capsys, "push", str(run.path), "owner/name")
    assert hub.models == {}


def test_what_is_not_there(run: RunFolder, hub: StandIn, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "owner/name is neither a local folder" in refused(capsys, "evaluate", "owner/name")
    assert "is not a run folder" in refused(capsys, "push", "nowhere", "owner/name")
    hub.models["owner/empty"] = [{"README.md": b"# Mine"}]
    hub.models["owner/bert"] = [{"config.json": b'{"model_type": "bert"}', "model.safetensors": b""}]
    for name in ("owner/empty", "owner/bert"):
        assert missing_facts(stopped(capsys, "evaluate", name), f"{name} 'uiat push'") == []
    with pytest.raises(UserError, match=r"owner/bert .*'v3'"):
        uiat.load("owner/bert", revision="v3")
    assert call(capsys, "export", str(run.path), "--out", str(tmp_path / "out")).code == 0
    assert "an export without a model card" in refused(capsys, "push", str(tmp_path / "out"), "owner/name")


def test_a_hub_that_does_not_answer(
    run: RunFolder, hub: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    with stand_in() as gone:
        pass
    monkeypatch.setattr(constants, "ENDPOINT", gone.address)
    assert "the Hub cannot be reached for owner/name (" in refused(capsys, "push", str(run.path), "owner/name")
    message = refused(capsys, "evaluate", "owner/name")
    assert missing_facts(message, "path owner/name Hub reached") == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in refused(capsys, "evaluate", "owner/name")


def test_a_cached_network_loads_without_the_hub(
    run: RunFolder, hub: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    assert call(capsys, "push", str(run.path), "owner/name").code == 0
    expected = uiat.load("owner/name")(images(GREY))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert torch.equal(uiat.load("owner/name")(images(GREY)), expected)


def test_without_the_package(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "evaluate", "owner/name")
    assert missing_facts(message, "path owner/name 'pip install huggingface_hub'") == []
    assert refused(capsys, "push", str(run.path), "owner/name").endswith("pip install huggingface_hub.")
    uiat.load(run.path)


def test_a_path_wins_over_a_name(
    run: RunFolder, hub: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("owner").mkdir()
    assert refused(capsys, "evaluate", "owner/nam").startswith("there is no owner/nam: ")
    run.path.rename(tmp_path / "owner" / "name")
    uiat.load("owner/name")
    with pytest.raises(UserError, match=r"revision .*owner/name .*local"):
        uiat.load("owner/name", revision="main")
    with pytest.raises(UserError, match=r"owner/nam: .*owner/name"):
        uiat.load("owner/nam")
    assert hub.calls == []


@pytest.mark.parametrize(
    "name",
    ["name", "a/b/c", "/a/b", "a/", "-a/b", "a/b-", "a/b.git", "a/b--c", "a/..", "a/b c", "ä/b", "a/" + 99 * "b"],
)
def test_invalid_names(name: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    validate: Callable[[str], None] = pytest.importorskip("huggingface_hub.utils").validate_repo_id
    with pytest.raises(ValueError, match=r"."):
        validate("" if name == "name" else name)  # which would take a name without an owner
    assert repr(name) in stopped(capsys, "push", "--", str(run.path), name)


@pytest.mark.parametrize("name", ["a/b", "Owner-1/wrn-28-10_uiat.v2", "o/_b"])
def test_names(name: str) -> None:
    pytest.importorskip("huggingface_hub.utils").validate_repo_id(name)
    assert is_name(name)


def test_the_page_about_sharing(hub: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its blocks in order, as a reader would run them, with a smaller run."""
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    commands = 0
    for block in blocks(ROOT / "docs" / "sharing.md"):
        if "photos" in block.text:
            continue  # in tests/docs/test_data_page.py
        if block.language == "python":
            names: dict[str, object] = {}
            exec(compile(block.text, "sharing.md", "exec"), names)
            assert isinstance(names["logits"], torch.Tensor)
            assert names["logits"].shape == (4, 10)
            continue
        for program, *args in block.commands():
            assert program == "uiat"
            assert main([*args, *(TINY if args[0] == "train" else [])]) == 0, args
            commands += 1
    assert commands == 6
    assert b"| pgd-20 |" in hub.files("owner/name")["README.md"]


def test_training_from_a_network_on_the_hub(
    run: RunFolder, hub: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "export", str(run.path), "--hub-card", "--out", str(tmp_path / "out")).code == 0
    assert call(capsys, "push", str(tmp_path / "out"), "owner/name").code == 0
    downloaded = weights_at("owner/name")
    assert downloaded.read_bytes() == weights_at(str(tmp_path / "out")).read_bytes()
    assert downloaded.is_relative_to(tmp_path / "cache")


LOAD = """\
import sys
import torch, uiat
from safetensors.torch import load_file
x = load_file("x.safetensors")["x"].clone()
torch.set_num_threads(1)
assert torch.equal(uiat.load("owner/name")(x), load_file("logits.safetensors")["logits"])
print(*sorted(set(sys.modules) & {"tyro", "rich", "matplotlib", "sklearn", "scipy", "pyautoattack", "pooch", "pandas"}))
"""


def test_in_separate_processes(run: RunFolder, tmp_path: Path) -> None:
    """With the package's real endpoint, uploader and cache."""
    pytest.importorskip("huggingface_hub")
    from safetensors.torch import save_file

    x = images(GREY)
    with torch.no_grad():
        save_file({"logits": uiat.load(run.path)(x)}, tmp_path / "logits.safetensors")
    save_file({"x": x}, tmp_path / "x.safetensors")
    with stand_in() as hub:
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
        env = {**os.environ, **own, "OMP_NUM_THREADS": "1"}
        for args in (["-m", "uiat", "push", "run", "owner/name"], ["-c", LOAD]):
            done = subprocess.run(
                [sys.executable, *args], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        assert done.stdout == "\n"
        assert set(hub.files("owner/name")) == FILES
