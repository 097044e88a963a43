"""Accuracy, against a plain loop."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.runs import CPU, splits
from uiat.attacks import PGD
from uiat.data.data_config import DataConfig
from uiat.data.images import Images
from uiat.evaluation import curve_measurement
from uiat.evaluation.evaluation_result import AttackResult
from uiat.evaluation.inverses import inverse_settings, make_inverses
from uiat.evaluation.subject import LoadedSubject, Subject
from uiat.evaluation.suite import accuracy, run_suite
from uiat.models import Imported
from uiat.report.page import network_summary
from uiat.report.page.frames import Walk, make_frames

IMAGES = splits().test
ATTACKS = {"natural": None, "fgsm": PGD(eps=0.1, step=0.1, steps=1, start="none"), "random": PGD(eps=0.2, steps=3)}


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 10)]
    return nn.Sequential(*layers)


def plain_loop(model: nn.Module, attack: PGD | None) -> list[bool]:
    """Measure one image at a time; an image that is misclassified without an attack counts as misclassified."""
    model.eval()
    verdicts = []
    for x, y in zip(IMAGES.x.float() / 255, IMAGES.y, strict=True):
        right = bool(model(x[None]).argmax() == y)
        if attack is not None:
            right = right and bool(model(attack(model, x[None], y[None])).argmax() == y)
        verdicts.append(right)
    model.train()
    return verdicts


@pytest.mark.parametrize("name", ["natural", "fgsm"])
@pytest.mark.parametrize("batch_size", [7, 40, 1000])
def test_it_is_a_plain_loops(name: str, batch_size: int, model: nn.Sequential) -> None:
    learn(model)
    found = accuracy(model, IMAGES, ATTACKS[name], batch_size=batch_size)
    expected = plain_loop(model, ATTACKS[name])
    assert found.correct.tolist() == expected
    assert found.accuracy == sum(expected) / len(expected)
    assert 0 < sum(expected) < len(expected)


def learn(model: nn.Module) -> None:
    """Train a little, so that the attack succeeds on some images but not on all."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(IMAGES.x.float() / 255), IMAGES.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_model_is_left_alone(name: str, model: nn.Sequential) -> None:
    model.train()
    model[1].eval()
    model[0].requires_grad_(False)
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    accuracy(model, IMAGES, ATTACKS[name])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True, True, True]
    assert all(p.grad is None for p in model.parameters())


def test_a_seed_decides_the_random_starts(model: nn.Sequential) -> None:
    learn(model)
    attack = PGD(eps=0.5, step=0.0, steps=1)  # only the start differs
    seeds = [accuracy(model, IMAGES, attack, seed=seed).correct for seed in (0, 0, 1)]
    assert torch.equal(seeds[0], seeds[1])
    assert not torch.equal(seeds[0], seeds[2])


def test_batches_decide_nothing(model: nn.Sequential) -> None:
    learn(model)
    found = [accuracy(model, IMAGES, PGD(eps=0.2, steps=3), batch_size=size).correct for size in (3, 40)]
    assert torch.equal(found[0], found[1])
    assert 0 < found[0].sum() < len(IMAGES)


def test_the_record() -> None:
    found = AttackResult("pgd-2", 0.1, torch.tensor([True, True, False, True]), 1.23456).to_dict()
    assert (found["accuracy"], found["n"], found["seconds"]) == (0.75, 4, 1.235)
    assert found["interval95"] == pytest.approx([0.3006, 0.9544], abs=1e-4)


def test_logits_that_are_no_numbers_are_wrong_answers() -> None:
    """Also of class 0, which `argmax` returns for them; with and without an attack. A note counts them."""

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            logits = x.flatten(1)[:, :2] * 1.0
            return torch.where(x.flatten(1).mean(1, keepdim=True) > 0.5, torch.nan, logits)

    x = torch.tensor([0, 255], dtype=torch.uint8).repeat_interleave(5).view(10, 1, 1, 1).expand(10, 1, 8, 8)
    images = Images(x.contiguous(), torch.zeros(10, dtype=torch.long), ("a", "b"))
    measured = run_suite(Broken(), images, ["natural", "fgsm"], PGD(eps=0.0))
    for found in measured.values():
        assert found.correct.tolist() == [True] * 5 + [False] * 5
    assert any("5 of 10 images have NaN logits" in notice for notice in measured.notices)


class Blank(nn.Module):
    """Returns NaN for the first class, the label of all images: `argmax` would select it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return torch.cat([logits[:, :1] * torch.nan, logits[:, 1:]], dim=1)


def _blank_accuracies() -> dict[str, float]:
    model, n = Blank().eval().requires_grad_(False), 6
    images = Images(torch.full((n, 1, 8, 8), 100, dtype=torch.uint8), torch.zeros(n, dtype=torch.long), ("a", "b", "c"))
    base = PGD(eps=0.1, step=None, steps=2)
    subject = Subject(DataConfig(), Imported())
    ready = LoadedSubject(Path(), None, Path(), subject, model, model, images, images, base, CPU, 0, "")
    curve = curve_measurement.measure(
        model, images, curve_measurement.plan_points((-0.1, 0.0, 0.1), "pgd-2", base, num_classes=3, seed=0)
    )
    settings = inverse_settings(None, base, beta=0.0)
    inverses = make_inverses(model, model, images, settings, torch.zeros(3, 1, 8, 8), torch.arange(2))
    frames = make_frames(model, model, images, Walk(0.1), CPU)
    confusion = network_summary._confusion(ready, images.x / 255, 3)
    return {
        "natural": accuracy(model, images, None).accuracy,
        "attacked": accuracy(model, images, base).accuracy,
        "suite": run_suite(model, images, ["pgd-2"], base)["pgd-2"].accuracy,
        "curve": float(curve.correct.double().mean()),
        **{kind: float(verdicts.double().mean()) for kind, verdicts in inverses.correct.items()},
        "frames": float((frames.guess == 0).double().mean()),
        "probability": float(frames.p.sum()),
        "confusion": float(confusion.diag().sum()),
        "lost": float(n - confusion.sum()),
    }


def test_nan_logits_are_wrong_everywhere() -> None:
    assert set(_blank_accuracies().values()) == {0.0}
