"""Weights files: valid ones of any origin are loaded, and invalid ones are refused with a reason."""

import io
import os
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.calls import call, missing_facts, refused
from tests.support.networks import data, settle
from uiat import UserError
from uiat.models import MODELS, WideResNet
from uiat.runs.weights import load_weights, read_weights

State = dict[str, Tensor]
WRAPPED: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3, "best_acc": 0.5},
    "model_state_dict": lambda state: {"model_state_dict": state, "unaveraged_model_state_dict": {}},
    "net": lambda state: {"net": state, "acc": 93.0},
    "model": lambda state: {"model": state, "optimizer": {"state": {}, "param_groups": []}},
    "twice": lambda state: {"model": {"state_dict": state}},
}
RENAMED: dict[str, Callable[[str], str]] = {
    "unchanged": lambda name: name,
    "DataParallel": lambda name: f"module.{name}",
    "compiled": lambda name: f"_orig_mod.{name}",
    "compiled DataParallel": lambda name: f"_orig_mod.module.{name}",
    "DataParallel, compiled": lambda name: f"module._orig_mod.{name}",
}


def save_as_on_gpu(state: State, path: Path) -> None:
    """Save a state dict whose storages are marked as cuda:0, as if saved on a GPU."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as sound, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as moved:
        for entry in sound.infolist():
            content = sound.read(entry)
            moved.writestr(entry.filename, _move(content) if entry.filename.endswith("data.pkl") else content)
    assert b"cuda:0" in path.read_bytes()


def _move(pickled: bytes) -> bytes:
    """Replace the string 'cpu' by 'cuda:0' where the pickle has it: an opcode, the length in four bytes, the text."""
    places = [at for opcode, value, at in pickletools.genops(pickled) if value == "cpu" and opcode.name == "BINUNICODE"]
    assert places
    old, new = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
    for at in reversed(places):
        assert at is not None
        assert pickled[at : at + len(old)] == old
        pickled = pickled[:at] + new + pickled[at + len(old) :]
    return pickled


class Command:
    """Unpickling it would call `os.system`."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.line,)


class Own(nn.Module):
    """A network with a submodule called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 3)
        self.last = nn.Linear(3, 2)


DIGITS = data(shape=(1, 8, 8))
EVALUATE = ("--model", "resnet8", "--data", "digits", "--n", "10", "--attacks", "natural", "--device", "cpu")


def fresh(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS["resnet8"].build(DIGITS)


@pytest.fixture(scope="module")
def source() -> nn.Module:
    torch.manual_seed(1)
    return settle(MODELS["resnet8"].build(DIGITS), torch.rand(4, 1, 8, 8))


@pytest.fixture(scope="module")
def state(source: nn.Module) -> dict[str, Tensor]:
    return source.state_dict()


def assert_loads(path: Path, expected: dict[str, Tensor], model: nn.Module | None = None) -> None:
    model = fresh(2) if model is None else model
    load_weights(model, path)
    found = model.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".tar"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_wrapped_in_the_usual_keys(wrapped: str, suffix: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(WRAPPED[wrapped](state), tmp_path / f"net{suffix}")
    assert_loads(tmp_path / f"net{suffix}", state)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("renamed", RENAMED)
def test_under_the_names_of_wrappers(renamed: str, suffix: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    path, named = tmp_path / f"net{suffix}", {RENAMED[renamed](name): tensor for name, tensor in state.items()}
    (save_file if suffix == ".safetensors" else torch.save)(named, path)
    assert_loads(path, state)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_a_part_that_is_called_module(prefix: str, tmp_path: Path) -> None:
    own = Own().state_dict()
    torch.save({f"{prefix}{name}": tensor for name, tensor in own.items()}, tmp_path / "own.pt")
    assert_loads(tmp_path / "own.pt", own, Own())


def test_the_old_format_and_parameters(state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert_loads(tmp_path / "old.pt", state)
    torch.save({n: nn.Parameter(t) if t.is_floating_point() else t for n, t in state.items()}, tmp_path / "par.pt")
    assert_loads(tmp_path / "par.pt", state)


def test_saved_on_a_gpu(state: dict[str, Tensor], tmp_path: Path) -> None:
    save_as_on_gpu(state, tmp_path / "net.pt")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA device"):  # the file has what the test requires
            torch.load(tmp_path / "net.pt", weights_only=True)
    assert {tensor.device.type for tensor in read_weights(tmp_path / "net.pt").values()} == {"cpu"}
    assert_loads(tmp_path / "net.pt", state)


def test_unused_entries_of_the_trades_code_are_ignored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = WideResNet(depth=10, widen=1)
    state = config.build(DIGITS).state_dict()
    extra = {name.replace("block1.", "sub_block1."): t for name, t in state.items() if name.startswith("block1.")}
    assert extra
    torch.save({f"module.{name}": t for name, t in {**state, **extra}.items()}, tmp_path / "wrn.pt")
    assert_loads(tmp_path / "wrn.pt", state, config.build(DIGITS))


def test_checkpoints_older_than_num_batches_tracked(state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({n: t for n, t in state.items() if not n.endswith("num_batches_tracked")}, tmp_path / "net.pt")
    model = fresh(2)
    load_weights(model, tmp_path / "net.pt")
    found = model.state_dict()
    kept = {name for name in state if name.endswith("num_batches_tracked")}
    assert [n for n in state if n not in kept and not torch.equal(found[n], state[n])] == []
    assert all(found[name] == 0 for name in kept)


def test_half_precision_becomes_float32(state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({n: t.half() if t.is_floating_point() else t for n, t in state.items()}, tmp_path / "net.pt")
    model = fresh(2)
    load_weights(model, tmp_path / "net.pt")
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.safetensors"])
def test_the_command_line_takes_them(
    name: str,
    state: dict[str, Tensor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (save_file if name.endswith("safetensors") else torch.save)(state, tmp_path / name)
    found = call(capsys, "evaluate", str(tmp_path / name), *EVALUATE)
    assert found.code == 0, found.err
    assert "natural" in found.out


UNREADABLE = "is not a readable weights file"


def spoil(kind: str, folder: Path, state: dict[str, Tensor]) -> tuple[Path, str]:
    """Write an invalid file, and return it with facts that the message must contain."""
    path = folder / f"{kind.replace(' ', '-')}.pt"
    torch.save(state, path)
    sound = path.read_bytes()
    if kind == "corrupt":
        path.write_bytes(sound[:200] + bytes(200) + sound[400:])
    elif kind == "truncated":
        path.write_bytes(sound[: len(sound) // 2])
    elif kind == "truncated old":
        torch.save(state, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes()[:-1000])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("the weights are elsewhere\n")
    elif kind == "picture":
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    elif kind == "truncated safetensors":
        path = path.with_suffix(".safetensors")
        save_file(state, path)
        path.write_bytes(path.read_bytes()[:-100])
        return path, f"{path} safetensors"
    elif kind == "no weights":
        torch.save({"epoch": 3, "state_dict": {}}, path)
        return (
            path,
            f"{path} weights state_dict model_state_dict net model",
        )
    elif kind == "a list":
        torch.save([1, 2, 3], path)
        return (
            path,
            f"{path} weights state_dict model_state_dict net model",
        )
    elif kind == "itself":
        endless: dict[str, Any] = {}
        endless["model"] = endless
        torch.save(endless, path)
        return (
            path,
            f"{path} weights state_dict model_state_dict net model",
        )
    return path, f"{path} {UNREADABLE}"


@pytest.mark.parametrize(
    "kind",
    [
        *("corrupt", "truncated", "truncated old", "empty", "text", "picture", "truncated safetensors"),
        *("no weights", "a list", "itself"),
    ],
)
def test_an_unsound_file(
    kind: str, state: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, facts = spoil(kind, tmp_path, state)
    assert missing_facts(refused(capsys, "evaluate", str(path), *EVALUATE), facts) == []


def test_code_in_a_file_is_not_run(
    state: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = tmp_path / "proof"
    for k, saved in enumerate(({"state_dict": state, "extra": Command(f"touch {proof}")}, fresh(0), fresh)):
        path = tmp_path / f"code{k}.pt"
        for old in (False, True):
            torch.save(saved, path, _use_new_zipfile_serialization=not old)
            message = refused(capsys, "evaluate", str(path), *EVALUATE)
            assert f"{path} holds objects or code" in message
            assert "state_dict()" in message
    assert not proof.exists()


def test_another_network(state: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pt"
    torch.save({**state, "conv1.weight": state["conv1.weight"].repeat(1, 3, 1, 1)}, path)
    expected = f"{path} conv1.weight '(16, 3, 3, 3)' '(16, 1, 3, 3)'"
    assert missing_facts(refused(capsys, "evaluate", str(path), *EVALUATE), expected) == []
    torch.save({name: t for name, t in state.items() if not name.startswith("layer2")}, path)
    expected = f"{path} layer2.0.conv1.weight '(32, 16, 3, 3)'"
    assert missing_facts(refused(capsys, "evaluate", str(path), *EVALUATE), expected) == []
    torch.save({**state, "layer9.weight": torch.zeros(2, 3)}, path)
    expected = f"{path} layer9.weight '(2, 3)'"
    assert missing_facts(refused(capsys, "evaluate", str(path), *EVALUATE), expected) == []


def test_a_failure_leaves_the_network_unchanged(state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({**state, "linear.bias": torch.zeros(3)}, tmp_path / "net.pt")
    model = fresh(2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(UserError, match=r"'linear\.bias' has shape \(3,\)"):
        load_weights(model, tmp_path / "net.pt")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.pt"
    assert f"{missing}" in refused(capsys, "evaluate", str(missing), *EVALUATE)
    assert f"{tmp_path} " in refused(capsys, "evaluate", str(tmp_path), *EVALUATE)
    with pytest.raises(UserError, match=str(missing)):
        read_weights(missing)
