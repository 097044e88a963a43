"""`uiat predict`: the pixels of training, the network's predictions, and adversarial examples."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import uiat
from tests.support.calls import Call, call
from tests.support.data_files import CLASSES, fill, picture, read
from tests.support.exports import GREY, make_run
from uiat.data.image_folder import find_images
from uiat.data.images import Images, to_unit
from uiat.evaluation.prediction import list_pictures, load_predictor, predict_batch
from uiat.evaluation.subject import Subject
from uiat.models import Imported, ResNet
from uiat.runs.run_folder import RunFolder, Weights
from uiat.types import DataSpec

SHAPE = (3, 24, 32)
NET = ResNet(blocks=(1, 1), width=4)


def photos_run(path: Path, shape: tuple[int, ...] = SHAPE, classes: tuple[str, ...] = CLASSES) -> RunFolder:
    """Return a run on photos that do not exist; its network has random weights, balanced for colour photos."""
    facts = {"name": "./gone", "classes": list(classes), "shape": list(shape), "train": 20, "validation": 3, "test": 6}
    run, _ = make_run(path, NET, DataSpec(len(classes), 20, shape), data=facts)
    if shape == SHAPE:
        for weights in ("best", "last"):
            balance(run, weights)
    return run


def balance(run: RunFolder, weights: Weights) -> None:
    """Shift the logits so that their means on photos are equal, since random weights predict one class everywhere."""
    pictures = [picture(label, k, (SHAPE[2], SHAPE[1])) for label in range(3) for k in range(5)]
    x = torch.from_numpy(np.stack([np.asarray(one) for one in pictures])).permute(0, 3, 1, 2)
    tensors = load_file(run.weights(weights))
    (bias,) = (name for name, tensor in tensors.items() if name.endswith("bias") and len(tensor) == 3)
    with torch.no_grad():
        tensors[bias] -= uiat.load(run.path, weights=weights)(to_unit(x)).mean(dim=0)
    save_file(tensors, run.weights(weights))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and five photos of each class."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))
    photos_run(tmp_path / "run")
    fill(tmp_path / "photos", dict.fromkeys(CLASSES, 5))
    return tmp_path


def predicted(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """Return the JSON of a command that succeeds."""
    found = call(capsys, "predict", *args, "--json", "-")
    assert found.code == 0, found.err
    card: dict[str, Any] = json.loads(found.out)
    return card


def probabilities(card: dict[str, Any]) -> Tensor:
    """Return the probabilities (images, classes) of a JSON with all classes."""
    rows = [{entry["index"]: entry["probability"] for entry in image["predictions"]} for image in card["images"]]
    return torch.tensor([[row[k] for k in range(len(card["classes"]))] for row in rows], dtype=torch.float64)


def vary(folder: Path) -> None:
    """Add pictures that must be converted: rotated by EXIF, transparent, with a palette, grey, 16 bits."""
    at = folder / CLASSES[0]
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(0, 90).save(at / "turned.jpg", exif=exif)
    clear = picture(0, 91).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    clear.save(at / "clear.png")
    clear.save(at / "clear.webp", lossless=True)
    picture(0, 92).quantize(16).save(at / "palette.gif")
    picture(0, 93).convert("L").save(at / "grey.bmp")
    Image.fromarray(np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 21).save(at / "deep.png")
    (folder / CLASSES[1] / "deeper").mkdir()
    picture(1, 94, (50, 90)).save(folder / CLASSES[1] / "deeper" / "tall.png")


@pytest.mark.parametrize("size", [(24, 32), (60, 40)])
@pytest.mark.parametrize("grey", [False, True])
def test_a_file_of_the_training_folder_gets_the_same_pixels(size: tuple[int, int], grey: bool, tmp_path: Path) -> None:
    """Also where a picture is converted; a hook records the network's input."""
    folder, store = fill(tmp_path / "photos", dict.fromkeys(CLASSES, 5)), tmp_path / "store"
    vary(folder)
    if grey:
        for file in list(find_images(folder)):
            if file.suffix in (".gif", ".webp"):  # which have no grey pictures
                file.unlink()
                continue
            with Image.open(file) as image:
                image.load()
                image.convert("L").save(file, exif=image.getexif())
    splits = read(folder, store, size=size)
    assert splits.spec.shape == (1 if grey else 3, *size)
    run = photos_run(tmp_path / "run", splits.spec.shape)
    (packed,) = (store / "packed").iterdir()
    names = [json.loads(line) for line in (packed / "files.jsonl").read_text().splitlines()]
    trained = torch.cat([part.x for part in (splits.train, splits.validation, splits.test)])
    assert len(names) == len(trained) == (20 if grey else 22)
    seen: list[Tensor] = []
    subject = load_predictor(run.path, Subject(run.read_config().data, NET, device="cpu"))
    subject.model.register_forward_pre_hook(lambda module, x: seen.append(x[0]))
    found, _ = predict_batch(subject, [folder / name for name in names], top=1)
    assert [prediction.error for prediction in found] == [""] * len(names)
    assert torch.equal(torch.cat(seen), to_unit(trained))


def test_runs_exports_and_weights_agree(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also with the network in Python; none of them reads the data of the run."""
    run = predicted(capsys, "run", "photos", "--top", "9")
    files = [Path(entry["file"]) for entry in run["images"]]
    assert files == sorted(Path("photos").rglob("*.*"))
    model = uiat.load("run")
    splits = read(here / "photos", here / "store", size=SHAPE[1:])
    packed = next((here / "store" / "packed").iterdir())
    order = [json.loads(line) for line in (packed / "files.jsonl").read_text().splitlines()]
    x = torch.cat([part.x for part in (splits.train, splits.validation, splits.test)])
    x = x[[order.index(str(file.relative_to("photos"))) for file in files]]
    with torch.no_grad():
        expected = model(to_unit(x)).double().softmax(dim=1)
    torch.testing.assert_close(probabilities(run), expected, rtol=1e-5, atol=1e-6)
    assert len({entry["predictions"][0]["class"] for entry in run["images"]}) > 1
    assert run["preprocessing"]["size"] == [24, 32]
    assert run["classes"] == list(CLASSES)
    assert call(capsys, "export", "run", "--out", "export").code == 0
    export = predicted(capsys, "export", "photos", "--top", "9")
    assert export["images"] == run["images"]
    last = predicted(capsys, "run", "photos", "--weights", "last", "--top", "9")
    assert not torch.allclose(probabilities(last), expected, atol=1e-3)
    weights = ["run/best.safetensors", "--model", "resnet8", "--model.blocks", "1", "1", "--model.width", "4"]
    weights += ["--data", "./photos", "--data.size", "24", "32"]
    bare = predicted(capsys, *weights[:1], "photos", *weights[1:], "--top", "9")
    assert bare["images"] == run["images"]


def test_lines_for_people(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = "photos/red/001.png"
    (entry,) = predicted(capsys, "run", file)["images"]
    found = call(capsys, "predict", "run", file, "--top", "2")
    first, second, _ = (f"{ranked['class']} {ranked['probability']:.2%}" for ranked in entry["predictions"])
    assert (found.code, found.out, found.err) == (0, f"{file}: {first}, {second}\n", "")
    assert call(capsys, "predict", "run", file, "--json", "out.json").out.startswith(f"{file}: {first}, {second}, ")
    assert json.loads(Path("out.json").read_text())["images"] == [entry]


def test_batches_do_not_matter(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = predicted(capsys, "run", "photos", "--top", "9")
    parts = predicted(capsys, "run", "photos", "--top", "9", "--batch-size", "4")
    assert [entry["file"] for entry in parts["images"]] == [entry["file"] for entry in whole["images"]]
    torch.testing.assert_close(probabilities(parts), probabilities(whole), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_adversarial_examples_are_those_of_an_evaluation(
    norm: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`uiat.evaluate`, with the predictions as labels, finds them for the same pictures; a large radius for all."""
    natural = predicted(capsys, "run", "photos", "--top", "1")
    y = torch.tensor([entry["predictions"][0]["index"] for entry in natural["images"]])
    subject = load_predictor(Path("run"), Subject(RunFolder("run").read_config().data, NET, device="cpu"))
    seen: list[Tensor] = []
    hook = subject.model.register_forward_pre_hook(lambda module, x: seen.append(x[0]))
    predict_batch(subject, list_pictures(["photos"]), top=1)
    hook.remove()
    counts = []
    for radius in (1e-6, 0.01, 0.02, 0.05, 0.9) if norm == "linf" else (1e-6, 0.3, 0.6, 1.5, 40.0):
        flags = ["--radius", str(radius), "--norm", norm, "--exact", "--attack", "pgd-5"]
        found = predicted(capsys, "run", "photos", *flags)
        assert found["attack"].items() >= {"name": "pgd-5", "norm": norm, "eps": radius, "step": radius / 4}.items()
        fooled = [entry["adversarial"] is not None for entry in found["images"]]
        result = uiat.evaluate(subject.model, seen[0], y, ("pgd-5",), eps=radius, norm=norm)  # type: ignore[arg-type]
        assert fooled == (~result["pgd-5"].correct).tolist()
        for entry in found["images"]:
            if entry["adversarial"] is not None:
                assert entry["adversarial"]["class"] == CLASSES[entry["adversarial"]["index"]]
                assert entry["adversarial"]["index"] != entry["predictions"][0]["index"]
        counts.append(sum(fooled))
    assert counts[0] == 0
    assert counts[-1] > 0


def test_the_line_about_an_adversarial_example(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("run", "photos/red/001.png", "--radius", "229.5/255")
    (entry,) = predicted(capsys, *args)["images"]
    line = call(capsys, "predict", *args).out
    turned = entry["adversarial"]
    assert line.endswith(f"; adversarial example within 0.9: yes, {turned['class']} {turned['probability']:.2%}\n")
    none = call(capsys, "predict", "run", "photos/red/001.png", "--radius", "0.01/255").out
    assert none.endswith(": none found\n")


def test_broken_pictures_are_named_and_the_others_predicted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = Path("photos/red/001.png").read_bytes()
    broken = {
        "photos/red/cut.png": whole[: len(whole) // 2],
        "photos/red/empty.jpg": b"",
        "photos/red/text.webp": b"no picture",
        "photos/red/32 bits.tiff": b"",
    }
    for name, content in broken.items():
        Path(name).write_bytes(content)
    Image.fromarray(np.ones((8, 8), np.float32)).save("photos/red/32 bits.tiff")
    Path("photos/red/broken link.png").symlink_to("nowhere")
    expected = predicted(capsys, "run", "photos/blue", "photos/green")["images"]
    missing = [*broken, "photos/red/broken link.png", "photos/red/01.png"]
    found: Call = call(
        capsys, "predict", "run", "photos", "photos/red/01.png", "--batch-size", "4", "--json", "out.json"
    )
    assert found.code == 2
    *lines, last = found.err.splitlines()
    assert {line.partition(": no prediction (")[0] for line in lines} == set(missing)
    assert last.startswith("uiat: 6 of 21 pictures")
    assert "32 bits" in next(line for line in lines if line.startswith("photos/red/32 bits.tiff"))
    assert "photos/red/001.png" in next(line for line in lines if line.startswith("photos/red/01.png"))
    assert len(found.out.splitlines()) == 15
    images = json.loads(Path("out.json").read_text())["images"]
    assert len(images) == 21
    assert {entry["file"] for entry in images if "error" in entry} == set(missing)
    for one, other in zip(images, expected, strict=False):
        assert one["file"] == other["file"]
        assert one["predictions"][0]["class"] == other["predictions"][0]["class"]


def test_what_is_in_a_folder(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.JPG", "a.webp", ".hidden/1.png", "__MACOSX/1.png", "b/notes.txt", "c/d/e/1.bmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c" / "loop").symlink_to(tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in list_pictures([str(tmp_path)])]
    assert names == ["a.webp", "b/1.JPG", "b/2.png", "c/d/e/1.bmp"]
    assert list_pictures([str(tmp_path / "b" / "notes.txt")]) == [tmp_path / "b" / "notes.txt"]  # named by the user


def test_names_that_others_chose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    classes = ("\x1b[31mred", "line\n# heading", "back\rover\x9b2J")
    photos_run(tmp_path / "run", classes=classes)
    picture(0, 0).save("no\x1b[2Jsuch.png")
    Path("bad\n\x1b[2J.png").touch()
    found = call(capsys, "predict", "run", "no\x1b[2Jsuch.png", "bad\n\x1b[2J.png")
    assert found.code == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", found.out + found.err)
    assert len(found.out.splitlines()) == 1
    assert len(found.err.splitlines()) == 2
    assert all(name in found.out for name in (r"\x1b[31mred", r"line\n# heading", r"back\rover\x9b2J"))


def test_a_network_that_returns_nan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = load_file("run/best.safetensors")
    broken = {name: torch.full_like(t, torch.nan) if t.is_floating_point() else t for name, t in tensors.items()}
    save_file(broken, "run/best.safetensors")
    found = call(capsys, "predict", "run", "photos/red/001.png", "--radius", "0.1")
    assert found.code == 2
    assert "NaN" in found.err
    assert found.out == ""


def test_grey_digits_and_a_custom_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_to_predict.py").write_text(
        "from torch import nn\ndef build(spec):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    run, _ = make_run(tmp_path / "run", Imported("own_to_predict:build"), GREY)
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4).save("one.png")
    card = predicted(capsys, str(run.path), "one.png", "--model", "own_to_predict:build", "--top", "99")
    x = torch.arange(64).view(1, 1, 8, 8) * 4 / 255
    expected = uiat.load(run.path, model="own_to_predict:build")(x).double().softmax(dim=1)
    torch.testing.assert_close(probabilities(card), expected.detach(), rtol=1e-5, atol=1e-6)
    assert card["preprocessing"]["colour"] == "grey"


def test_without_pillow(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = call(capsys, "predict", "run", "photos")
    assert (found.code, found.out) == (2, "")
    assert "pip install pillow" in found.err


def test_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    short, full = call(capsys, "predict", "--help").out, call(capsys, "predict", "--help-all").out
    assert short.startswith("usage: uiat predict TARGET IMAGE… [FLAGS]")
    for text in (short, full):
        assert all(flag in text for flag in ("--top", "--radius", "--attack", "--json", "--weights"))
        assert not re.search(r"--(n|sample|eps|step)\b", text)  # of test images, which are not used


def test_the_blank_images_take_no_memory(tmp_path: Path) -> None:
    run = photos_run(tmp_path / "run", (3, 8, 8))
    card = json.loads(run.result.read_text())
    run.result.write_text(json.dumps({**card, "data": {**card["data"], "train": 10**15}}))
    images: Images = load_predictor(run.path, Subject(run.read_config().data, NET, device="cpu")).train
    assert images.x.untyped_storage().nbytes() == 1
    assert images.classes == CLASSES
