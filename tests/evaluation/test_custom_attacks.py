"""`uiat.evaluate` with data sets as loaders and arrays, and with attacks as objects and functions."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uiat import FGSM, NFGSM, PGD, UserError, evaluate, images, indexed
from uiat.attacks import ATTACKS
from uiat.evaluation.custom_attack import attack_names

EPS = 0.1


@pytest.fixture(scope="module")
def setting() -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network and images, most of them labelled with its predictions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    x = torch.rand(40, 1, 8, 8)
    y = model(x).argmax(dim=1)
    y[::8] = (y[::8] + 1) % 10
    return model, x, y


class Dicts(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return {"pixel_values": x, "labels": int(y)}


FORMS: dict[str, Callable[[Tensor, Tensor], tuple[Any, ...]]] = {
    "arrays": lambda x, y: (x.double().numpy(), y.numpy().astype(np.uint8)),
    "views": lambda x, y: (x.flip(3).numpy()[..., ::-1], np.broadcast_to(y.numpy(), y.shape)),  # reversed, read-only
    "int32": lambda x, y: (x, y.int()),
    "pairs": lambda x, y: (DataLoader(TensorDataset(x, y), batch_size=7),),
    "indexed": lambda x, y: (DataLoader(indexed(TensorDataset(x, y)), batch_size=7),),
    "dicts": lambda x, y: (DataLoader(Dicts(x, y), batch_size=7),),
    "lists": lambda x, y: ([[x[:9].numpy(), y[:9].tolist()], [x[9:].numpy(), y[9:].tolist()]],),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_verdicts(form: str, setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    expected = evaluate(model, x, y, ("natural", "pgd-3"), eps=EPS)
    data, labels = (*FORMS[form](x, y), None)[:2]
    found = evaluate(model, data, labels, ("natural", "pgd-3"), eps=EPS)
    for name in expected:
        assert torch.equal(found[name].correct, expected[name].correct)
    assert 0 < expected["pgd-3"].accuracy < expected.natural < 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda x, y: (x,), "without labels"),
        (lambda x, y: (DataLoader(TensorDataset(x), batch_size=4),), "it is list: give"),
        (lambda x, y: ([{"picture": x, "label": y}],), "'picture', 'label'"),
        (lambda x, y: ([{"image": x, "img": x, "label": y}],), "'image', 'img', 'label'"),
        (lambda x, y: (3,), "x is of type int"),
        (lambda x, y: (x, ["cat"] * len(x)), "labels are of type list"),
        (lambda x, y: (TensorDataset(x, y),), "batches, not samples"),
        (lambda x, y: (DataLoader(TensorDataset(x, y)), y), "with y, give a tensor"),
        (lambda x, y: ([],), "no batches"),
        (lambda x, y: ([(x, y), (x[..., 1:], y)],), "several shapes"),
        (lambda x, y: (x, y.float()), "float32"),
    ],
)
def test_other_data_is_refused(data: Any, message: str, setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    with pytest.raises(UserError, match=message):
        evaluate(model, *data(x, y))


def test_images_of_a_data_set(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    test = images("digits").test.part(0, 20)
    found, expected = evaluate(setting[0], test, attacks="fgsm"), evaluate(setting[0], test.x / 255, test.y, "fgsm")
    assert torch.equal(found["fgsm"].correct, expected["fgsm"].correct)


def test_a_model_that_is_no_module(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    for other in (nn.Flatten, lambda x: model(x)):
        with pytest.raises(UserError, match=r"the model is of type .*give a torch\.nn\.Module"):
            evaluate(other, x, y)  # type: ignore[arg-type]


def test_an_object_is_the_attack_of_its_name(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    attack = PGD(eps=EPS, step=None, steps=3)
    found = evaluate(model, x, y, ("pgd-3", attack, FGSM(EPS)), eps=EPS)
    assert list(found) == ["pgd-3", "PGD(eps=0.1, step=None, steps=3)", "FGSM(eps=0.1)"]
    ours, theirs, fgsm = found.values()
    assert torch.equal(ours.correct, theirs.correct)
    assert ours.setting == theirs.setting
    assert torch.equal(fgsm.correct, evaluate(model, x, y, "fgsm", eps=EPS)["fgsm"].correct)
    assert evaluate(model, x, y, attack)["PGD(eps=0.1, step=None, steps=3)"].eps == EPS  # without eps, its own


def one_step(model: nn.Module, x: Tensor, y: Tensor, *, size: float = EPS, norm: float = torch.inf) -> Tensor:
    """A plain function that computes a gradient."""
    x = x.requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(x), y, reduction="sum"), x)
    unit = gradient.sign() if norm == torch.inf else gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return (x + size * unit).clamp(0, 1)


def test_a_function_is_measured_and_its_distance_is_reported(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    found = evaluate(model, x, y, ("fgsm", one_step, partial(one_step, size=EPS / 2)), eps=EPS)
    assert list(found) == ["fgsm", "one_step", "one_step #2"]
    assert torch.equal(found["fgsm"].correct, found["one_step"].correct)
    distances = [found[name].largest_distance for name in found]
    assert distances == [None, pytest.approx(EPS), pytest.approx(EPS / 2)]
    entry = json.loads(json.dumps(found.to_dict()))["attacks"]["one_step"]
    assert entry["largest_distance"] == pytest.approx(EPS)
    assert entry["definition"].endswith("test_custom_attacks.one_step")
    assert (entry["eps"], entry["norm"]) == (EPS, "linf")
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("eps", [np.float32(0.25), np.array(0.25), torch.tensor(0.25)], ids=["scalar", "0-d", "tensor"])
def test_a_radius_of_another_library(eps: Any, setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    expected = evaluate(model, x, y, "fgsm", eps=0.25)
    assert repr(evaluate(model, x, y, "fgsm", eps=eps)) == repr(expected)
    several = evaluate(model, x, y, "fgsm", eps=np.asarray([eps, eps / 2]))
    assert [type(key[1]) for key in several] == [float, float]
    assert torch.equal(several["fgsm", 0.25].correct, expected["fgsm"].correct)
    json.dumps(several.to_dict())
    for wrong in ("8/255", ["8/255"], [None]):
        with pytest.raises(UserError, match="give a number, such as 8/255"):
            evaluate(model, x, y, "fgsm", eps=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("attack", [PGD, 3, None])
def test_what_is_no_attack(attack: Any, setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    for attacks in (attack, ["natural", attack]):
        with pytest.raises(UserError, match="is no attack: give a name"):
            evaluate(model, x, y, attacks)


def test_an_attack_that_ends_in_training_mode(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    """As those of many papers' code: the network is measured in eval mode all the same, and its statistics stay."""
    inner, x, y = setting
    model = nn.Sequential(nn.BatchNorm2d(1, affine=False), inner).eval()

    def trained(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x_adv = one_step(model.eval(), x, y)
        model.train()(x_adv)
        return x_adv

    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = evaluate(model, x, y, ("fgsm", trained), eps=EPS, batch_size=6)
    assert 0 < found["fgsm"].accuracy < found.natural
    assert torch.equal(found["trained"].correct, found["fgsm"].correct)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_a_function_in_l2(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    attack = partial(one_step, size=0.9, norm=2.0)
    found = evaluate(model, x, y, (attack,), eps=0.9, norm="l2")["one_step"]
    assert found.largest_distance is not None
    assert 0.5 < found.largest_distance <= 0.9 + 1e-5
    with pytest.raises(UserError, match=r"l2 ball with ε = 0\.8"):
        evaluate(model, x, y, (attack,), eps=0.8, norm="l2")


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (lambda model, x, y: x + 0.11, r"ε = 0\.1"),
        (lambda model, x, y: x - 0.05, "pixels from -"),
        (lambda model, x, y: x * torch.nan, "pixels from nan"),
        (lambda model, x, y: x[:1], "shape"),
        (lambda model, x, y: model(x).no, "AttributeError"),
        (lambda model, x: x, "TypeError"),
    ],
)
def test_what_is_outside_the_threat_model_has_no_accuracy(
    attack: Any, message: str, setting: tuple[nn.Module, Tensor, Tensor]
) -> None:
    model, x, y = setting
    with pytest.raises(UserError, match=message) as found:
        evaluate(model, x.clamp(0.02, 0.85), y, (attack,), eps=EPS)
    assert "'lambda'" in str(found.value)


def test_an_attack_that_leaves_its_own_ball_is_refused(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    """N-FGSM is for training: its noise exceeds ε."""
    model, x, y = setting
    with pytest.raises(UserError, match="NFGSM"):
        evaluate(model, x, y, (NFGSM(eps=EPS),))


@pytest.mark.parametrize(
    ("attack", "eps", "message"),
    [
        (PGD(eps=EPS), 0.2, r"ε = 0\.1, and eps is 0\.2"),
        (PGD(eps=EPS), [0.2, 0.3], "0.2, 0.3"),
        (one_step, [0.1, 0.2], "several"),
    ],
)
def test_radii_that_contradict(attack: Any, eps: Any, message: str, setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    with pytest.raises(UserError, match=message):
        evaluate(model, x, y, (attack,), eps=eps)


def test_an_object_beside_several_radii(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    found = evaluate(model, x, y, ("natural", "fgsm", FGSM(EPS)), eps=[EPS, 0.2])
    assert list(found) == [("natural", 0.0), ("fgsm", EPS), ("fgsm", 0.2), ("FGSM(eps=0.1)", EPS)]
    assert torch.equal(found["FGSM(eps=0.1)"].correct, found["fgsm", EPS].correct)


def test_random_attacks_repeat_and_leave_the_random_state(setting: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = setting
    seen: list[Tensor] = []

    def noise(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append((x + EPS * torch.randn_like(x).sign()).clamp(0, 1))
        return seen[-1]

    state = torch.get_rng_state()
    for seed in (0, 0, 1):
        evaluate(model, x, y, (noise,), eps=EPS, seed=seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_names_are_readable_and_unique() -> None:
    names = attack_names(["natural", PGD(), PGD(), PGD(eps=4 / 255), one_step, lambda model, x, y: x, ATTACKS["fgsm"]])
    assert names == ["natural", "PGD()", "PGD() #2", "PGD(eps=4/255)", "one_step", "lambda", "FGSM()"]


@dataclass(frozen=True)
class Corner:
    """A registered attack: to the nearest corner of the ball, in the direction of a fixed pattern."""

    eps: float = 8 / 255
    step: float = 2 / 255

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: object = None) -> Tensor:
        assert self.step == pytest.approx(self.eps / 4)
        return (x + self.eps * (2 * (x > 0.5) - 1)).clamp(0, 1)


def test_a_registered_attack_is_scaled_to_the_threat_model(
    setting: tuple[nn.Module, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = setting
    monkeypatch.setitem(ATTACKS, "corner", Corner())
    found = evaluate(model, x, y, ("corner", "pgd-2"), eps=[EPS, 0.3])
    assert [key for key in found if key[0] == "corner"] == [("corner", EPS), ("corner", 0.3)]
    assert found["corner", 0.3].setting["definition"].startswith("Corner(eps=0.3")
    with pytest.raises(UserError, match="'corner' is of the norm linf"):
        evaluate(model, x, y, ("corner",), norm="l2")
    with pytest.raises(UserError, match="did you mean 'corner'"):
        evaluate(model, x, y, ("cornre",))
    monkeypatch.setitem(ATTACKS, "function", one_step)
    ours, theirs = evaluate(model, x, y, ("fgsm", "function"), eps=EPS).values()
    assert torch.equal(ours.correct, theirs.correct)
    monkeypatch.setitem(ATTACKS, "class", Corner)
    with pytest.raises(UserError, match="is no attack"):
        evaluate(model, x, y, ("class",))
    assert Path(__file__).stem in type(ATTACKS["corner"]).__module__
