"""The suite's verdicts compared with plain loops; the order of attack strengths; independence of the batch size."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.uiat_run import Precise
from uiat.attacks import PGD
from uiat.data import Splits
from uiat.data.images import Images, balanced
from uiat.errors import UserError
from uiat.evaluation.suite import accuracy, plan_attack, run_suite
from uiat.rng import SampleDraws

Load = Callable[[Path], nn.Module]


def plain_loop(model: nn.Module, images: Images, attack: PGD | None, seed: int) -> Tensor:
    """Attack every image, one at a time."""
    verdicts = []
    for i in range(len(images)):
        x, y = images.x[i : i + 1].float() / 255, images.y[i : i + 1]
        adversarial = x if attack is None else attack(model, x, y, SampleDraws(seed, index=(i,)))
        verdicts.append(bool(model(x).argmax() == y) and bool(model(adversarial).argmax() == y))
    return torch.tensor(verdicts)


def test_verdicts_equal_a_plain_loop(robust_run: Path, load: Load, digits: Splits) -> None:
    model, images = Precise(load(robust_run)).eval(), digits.test.take(torch.arange(30))
    base, short = PGD(eps=0.15, step=None), PGD(eps=0.15, step=None, steps=5)
    cw = PGD(eps=0.15, step=0.01 * 0.15 / (8 / 255), steps=40, loss="margin")
    plain = {
        name: plain_loop(model, images, attack, 2)
        for name, attack in {"natural": None, "pgd-5": short, "cw": cw}.items()
    }
    for batch_size in (7, 64):
        found = run_suite(model, images, list(plain), base, batch_size=batch_size, seed=2)
        for name, verdicts in plain.items():
            assert torch.equal(found[name].correct, verdicts), name
    assert torch.equal(accuracy(model, images, short, seed=2).correct, plain["pgd-5"])


def test_restarts_only_add_to_what_is_broken(robust_run: Path, load: Load, digits: Splits) -> None:
    model = load(robust_run)
    found = run_suite(model, digits.test, ["pgd-5", "pgd-5-4"], PGD(eps=0.2, step=None))
    once, often = found["pgd-5"].correct, found["pgd-5-4"].correct
    assert not (often & ~once).any()
    assert often.sum() < once.sum()
    after = list(found["pgd-5-4"].after.values())
    assert len(after) == 4
    assert after == sorted(after, reverse=True)
    assert after[0] == found["pgd-5"].accuracy


def test_broken_examples_are_not_attacked_again(robust_run: Path, load: Load, digits: Splits) -> None:
    model, seen = load(robust_run), []
    handle = model.register_forward_hook(lambda module, args, output: seen.append(len(output)))
    result = run_suite(model, digits.test, ["pgd-5-3"], PGD(eps=0.2, step=None))["pgd-5-3"]
    handle.remove()
    n, natural = len(digits.test), accuracy(model, digits.test, None).correct.sum()
    standing = [int(natural), *(round(n * share) for share in list(result.after.values())[:-1])]
    assert sum(seen) == n + sum(6 * count for count in standing)


def test_cw_is_about_as_strong_as_pgd(robust_run: Path, load: Load, many: Images) -> None:
    """On 602 examples of a TRADES model, CW leaves at most one point more than PGD-20."""
    assert len(many) >= 500
    found = run_suite(load(robust_run), many, ["cw", "pgd-20"], PGD(eps=0.2, step=None))
    assert found["cw"].accuracy <= found["pgd-20"].accuracy + 0.01


@pytest.mark.usefixtures("short_autoattack")
def test_strengths_are_ordered_and_tell_robust_from_natural(
    robust_run: Path, natural_run: Path, load: Load, digits: Splits
) -> None:
    names = ["natural", "fgsm", "pgd-20", "cw", "apgd-ce+apgd-t"]
    base = PGD(eps=0.15, step=None)
    assert len(digits.test) >= 300
    robust, natural = (
        run_suite(load(run), digits.test, names, base, batch_size=len(digits.test)) for run in (robust_run, natural_run)
    )
    for found in (robust, natural):
        for weaker, stronger in [
            ("natural", "fgsm"),
            ("fgsm", "pgd-20"),
            ("pgd-20", "apgd-ce+apgd-t"),
            ("cw", "apgd-ce+apgd-t"),
        ]:
            assert found[weaker].accuracy >= found[stronger].accuracy - 0.01, (weaker, stronger)
    for name in names[1:]:
        assert robust[name].accuracy > natural[name].accuracy + 0.1, name


def test_names() -> None:
    base = PGD(eps=0.1, step=0.02, norm="l2")
    assert plan_attack("pgd-50-10", base, num_classes=10, seed=1).setting["restarts"] == 10
    assert plan_attack("pgd-margin-7", base, num_classes=10, seed=1).setting["loss"] == "margin"
    fgsm = plan_attack("fgsm", base, num_classes=10, seed=1).setting
    assert (fgsm["norm"], fgsm["step"], fgsm["steps"], fgsm["start"]) == ("l2", 0.1, 1, "none")
    assert plan_attack("cw", PGD(eps=8 / 255), num_classes=10, seed=1).setting["step"] == pytest.approx(0.01)
    for wrong in ("pgd-0", "pgd", "pgd-20-0", "pdg-20", "natral", "autoattack+square", ""):
        with pytest.raises(UserError, match="unknown"):
            plan_attack(wrong, base, num_classes=10, seed=1)


@pytest.mark.parametrize("count", [1, 4, 5, 9, 12])
def test_balanced_sample(count: int) -> None:
    y = torch.tensor([0] * 6 + [1] * 4 + [2] * 2)
    chosen = balanced(y, count, seed=1)
    assert len(set(chosen.tolist())) == count
    assert chosen.tolist() == sorted(chosen.tolist())
    sizes = torch.bincount(y[chosen], minlength=3).tolist()
    limit = max(sizes)
    assert all(size >= limit - 1 or size == available for size, available in zip(sizes, (6, 4, 2), strict=True))
    assert torch.equal(chosen, balanced(y, count, seed=1))
    assert count in (1, 12) or any(not torch.equal(chosen, balanced(y, count, seed=s)) for s in range(2, 8))
