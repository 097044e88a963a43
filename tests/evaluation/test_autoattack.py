"""Our driver of AutoAttack's components compared with the authors', on few classes, and its warnings."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pyautoattack import AutoAttack
from torch import Tensor, nn

from tests.evaluation.conftest import SHORT
from uiat.attacks import PGD
from uiat.data import Splits
from uiat.data.images import Images
from uiat.errors import UserError
from uiat.evaluation import autoattack
from uiat.evaluation.suite import plan_attack, run_suite
from uiat.models.fast import speed_up

EPS, BATCH, SEED = 0.2, 30, 3


def shorten(theirs: AutoAttack) -> None:
    """Shorten the authors' attacks as the fixture shortens ours."""
    for attack in (theirs.apgd, theirs.apgd_targeted):
        attack.n_iter = SHORT["steps"]
        for name, share in (("n_iter_2", 0.22), ("n_iter_min", 0.06), ("size_decr", 0.03)):
            assert hasattr(attack, name)
            setattr(attack, name, max(int(share * attack.n_iter), 1))
    theirs.fab.n_iter, theirs.square.n_queries = SHORT["steps"], SHORT["queries"]


@pytest.mark.parametrize("length", ["short", pytest.param("whole", marks=pytest.mark.slow)])
def test_verdicts_equal_the_authors_driver(
    length: str,
    robust_run: Path,
    load: Callable[[Path], nn.Module],
    digits: Splits,
    request: pytest.FixtureRequest,
) -> None:
    """Exact: identical on 60 examples. Folded: at most one of them differs."""
    model, images = load(robust_run), digits.test.take(torch.arange(60))
    x = images.x.float() / 255
    theirs = AutoAttack(model, eps=EPS, norm="Linf", seed=SEED, version="standard")
    if length == "short":
        request.getfixturevalue("short_autoattack")
        shorten(theirs)
    _, predicted = theirs.run_standard_evaluation(x, images.y, batch_size=BATCH)
    base = PGD(eps=EPS)
    ours = run_suite(model, images, ["autoattack"], base, batch_size=BATCH, seed=SEED)["autoattack"]
    assert torch.equal(ours.correct, predicted == images.y)
    assert 0.05 < ours.accuracy < 0.6, "the comparison should have examples of both kinds"
    folded = speed_up(model, x)
    assert folded.folds > 0
    fast = run_suite(folded.crafting_network(), images, ["autoattack"], base, batch_size=BATCH, seed=SEED)["autoattack"]
    assert (fast.correct != ours.correct).sum() <= 1
    assert list(ours.after) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert list(ours.after.values()) == sorted(ours.after.values(), reverse=True)


def classifier(classes: int) -> tuple[nn.Module, Images]:
    """An untrained network, and images labelled with its predictions."""
    torch.manual_seed(classes)
    layers = (nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
    model = nn.Sequential(*layers).eval().requires_grad_(False)
    x = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = model(x.float() / 255).argmax(dim=1)
    return model, Images(x, y, tuple(f"class {c}" for c in range(classes)))


@pytest.mark.parametrize(
    ("classes", "omitted"), [(2, ["apgd-t"]), (3, ["apgd-t"]), (5, [])], ids=["two", "three", "five"]
)
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.usefixtures("short_autoattack")
def test_runs_on_few_classes(classes: int, omitted: list[str], norm: str) -> None:
    model, images = classifier(classes)
    base = PGD(eps=0.2 if norm == "linf" else 1.2, norm=norm)  # type: ignore[arg-type]
    found = run_suite(model, images, ["autoattack"], base, keep=True)
    result = found["autoattack"]
    assert [name for name in autoattack.CASCADES["standard"] if name not in result.setting["components"]] == omitted
    assert all(any(name in notice for notice in found.notices) for name in omitted)
    assert result.accuracy < 1
    assert result.x_adv is not None
    x, broken = images.x.float() / 255, ~result.correct
    assert (model(result.x_adv[broken]).argmax(dim=1) != images.y[broken]).all()
    assert torch.equal(result.x_adv[~broken], x[~broken])
    distance = (result.x_adv - x).flatten(1).norm(dim=1, p=2 if norm == "l2" else torch.inf)
    assert distance.max() <= base.eps + 1e-5


@pytest.mark.parametrize("classes", [2, 3, 4, 11])
def test_target_classes(classes: int) -> None:
    plan = plan_attack("fab-t", PGD(), num_classes=classes, seed=0)
    component = plan.components[0]
    assert isinstance(component, autoattack.AutoAttackComponent)
    assert component.targets == min(9, classes - 1)


def test_plus_and_custom_cascades() -> None:
    plus = plan_attack("autoattack-plus", PGD(), num_classes=10, seed=0)
    assert [c.name for c in plus.components] == ["apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"]
    assert [c.restarts for c in plus.components if isinstance(c, autoattack.AutoAttackComponent)] == [5, 5, 5, 1, 1, 1]
    own = plan_attack("square+apgd-ce", PGD(), num_classes=10, seed=0)
    assert [c.name for c in own.components] == ["square", "apgd-ce"]
    with pytest.raises(UserError, match="cannot run on 3 classes"):
        plan_attack("apgd-t", PGD(), num_classes=3, seed=0)
    with pytest.raises(UserError, match="did you mean 'autoattack'"):
        plan_attack("autoatack", PGD(), num_classes=3, seed=0)


class Softmax(nn.Module):
    """A classifier that returns probabilities instead of logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4].mul(5).softmax(dim=1)


class Noisy(nn.Module):
    """A randomised classifier."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4] + torch.randn(len(x), 4)


class Flat(nn.Module):
    """A classifier without a gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4].mul(8).round()


@pytest.mark.parametrize(
    ("model", "warned"),
    [(Softmax(), "probability distribution"), (Noisy(), "randomized defense"), (Flat(), "zero gradient")],
    ids=["probabilities", "randomised", "no gradient"],
)
def test_pitfalls_are_warned_about(model: nn.Module, warned: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (16, 1, 8, 8), dtype=torch.uint8, generator=g)
    y = (x.float() / 255).flatten(1)[:, :4].argmax(dim=1)
    found = run_suite(model, Images(x, y, tuple("abcd")), ["apgd-dlr"], PGD(eps=0.05))
    assert any(warned in notice for notice in found.notices)


def test_a_sound_model_gets_no_warning_and_keeps_the_random_state() -> None:
    model, images = classifier(5)
    state = torch.get_rng_state()
    assert run_suite(model, images, ["apgd-ce+fab"], PGD(eps=0.01)).notices == []
    assert torch.equal(torch.get_rng_state(), state)


def test_square_that_beats_the_gradients_is_suspicious() -> None:
    assert autoattack.square_warning({"apgd-ce": 0.5, "square": 0.4})
    assert not autoattack.square_warning({"apgd-ce": 0.5, "square": 0.4999})
    assert not autoattack.square_warning({"apgd-ce": 0.5})
