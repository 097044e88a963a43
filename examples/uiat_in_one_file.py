"""UIAT in one file: Algorithm 1 of "The Enemy of My Enemy is My Friend" (CVPR 2023), written out literally.

Written to be read with the paper, not to be fast: it loops over samples and classes as the paper does.
`uiat_step` is the body of the mini-batch loop; the package `uiat` is not used. Run as a script, it trains a tiny
network on scikit-learn's digits:

    python examples/uiat_in_one_file.py [--epochs N] [--one-off]

x_hat is the adversarial example x̂ (the enemy), x_check the inverse adversarial example x̌ (the friend), z[c] the
perturbation of all x̌ of class c, p the prediction on x̌, towards which the prediction on x̂ is pulled.
"""

import argparse
from dataclasses import dataclass, field

import torch
import torch.nn.functional as nnf
from sklearn.datasets import load_digits
from torch import Tensor, nn


@dataclass(frozen=True)
class Hyper:
    """The hyper-parameters, with the values of appendix A.2."""

    lam: float = 3.5  # λ of Eq. 7: weight of the pull towards p
    beta: float = 1.0  # β of Eq. 4: the weight of the features
    gamma: float = 0.9  # γ of Eq. 8: weight of the previous p
    eps: float = 8 / 255  # ε: radius of the attack
    alpha: float = 2 / 255  # α: its step size
    steps: int = 10  # and number of steps
    eps_inv: float = 4 / 255  # ε': radius of the inverse attack
    alpha_inv: float = 4 / 255  # α': its step size, one step per mini-batch
    momentum_from: float = 0.75  # T: first epoch with momentum; below 1, a fraction of the run
    once_at: float = 0.8  # T': one-off strategy: the only epoch with inverse examples


@dataclass
class State:
    """The state that is kept between mini-batches."""

    z: Tensor  # (C, *shape of a sample)
    p: dict[int, Tensor] = field(default_factory=dict)  # sample -> its stored distribution


class Net(nn.Module):
    """A small network with BatchNorm, for inputs in [0, 1]: F(x) are its features, f(x) = head(F(x))."""

    def __init__(self, pixels: int, classes: int, n: int = 128) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(pixels, n), nn.BatchNorm1d(n), nn.ReLU())
        self.head = nn.Linear(n, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        out: Tensor = self.head(self.features(x))
        return out


def pgd_attack(model: Net, x: Tensor, y: Tensor, start: Tensor, hyper: Hyper) -> Tensor:
    """Eq. 1, inner maximum: the adversarial example of one sample, from x + start."""
    x_hat = (x + start).clamp(0, 1)
    for _ in range(hyper.steps):
        x_hat = x_hat.detach().requires_grad_()
        loss = nnf.cross_entropy(model(x_hat[None]), y[None])
        (g,) = torch.autograd.grad(loss, x_hat)
        x_hat = x_hat + hyper.alpha * g.sign()
        x_hat = torch.clamp(x_hat, x - hyper.eps, x + hyper.eps).clamp(0, 1)
    return x_hat.detach()


def inverse_loss(model: Net, x_check: Tensor, x: Tensor, x_hat: Tensor, y: Tensor, beta: float) -> Tensor:
    """Eq. 4: cross-entropy, plus the distance to the features of x, minus that to the features of x̂."""
    with torch.no_grad():
        F_x, F_hat = model.features(x[None]), model.features(x_hat[None])
    F_check = model.features(x_check[None])
    cross_entropy = nnf.cross_entropy(model.head(F_check), y[None])
    return cross_entropy + beta * (nnf.l1_loss(F_check, F_x) - nnf.l1_loss(F_check, F_hat))


def epoch_number(when: float, epochs: int) -> int:
    """T and T': epochs count from 1; below 1, a fraction of the run, rounded down."""
    return int(when) if when >= 1 else max(1, int(when * epochs + 1e-9))


def probabilities(model: Net, x: Tensor) -> Tensor:
    """f(x) as a fixed target, without a gradient."""
    return torch.softmax(model(x), dim=1).detach()


def one_off_target(
    model: Net, x: Tensor, x_check: Tensor, index: Tensor, epoch: int, T_once: int, state: State
) -> Tensor:
    """Eq. S2: f(x) before T', f(x̌) at T', and the stored p afterwards."""
    if epoch < T_once:
        return probabilities(model, x)
    samples = index.tolist()
    if epoch == T_once or any(i not in state.p for i in samples):  # a sample may be missing at T'
        p = probabilities(model, x_check)
        for j, i in enumerate(samples):
            if epoch == T_once or i not in state.p:
                state.p[i] = p[j]
    return torch.stack([state.p[i] for i in samples])


def uiat_step(
    model: Net,
    x: Tensor,
    y: Tensor,
    index: Tensor,
    epoch: int,
    epochs: int,
    state: State,
    hyper: Hyper,
    one_off: bool = False,
    start: Tensor | None = None,
) -> Tensor:
    """Algorithm 1, lines 4-14, for one mini-batch: update z and p in `state`, return the loss.

    `index` has the positions of the samples in the training set; `start` is the random start of PGD, within ±ε.
    """
    T, T_once = epoch_number(hyper.momentum_from, epochs), epoch_number(hyper.once_at, epochs)
    batch, classes = range(len(x)), range(len(state.z))
    if start is None:
        start = torch.empty_like(x).uniform_(-hyper.eps, hyper.eps)

    model.eval()  # adversarial and inverse examples are crafted with running statistics
    x_hat = torch.stack([pgd_attack(model, x[j], y[j], start[j], hyper) for j in batch])  # line 6

    if not one_off or epoch == T_once:
        z = [state.z[c].clone().requires_grad_() for c in classes]
        l_inv = [x.new_zeros(()) for _ in classes]  # line 4
        for j in batch:  # line 5
            c = int(y[j])
            x_check_j = (x[j] + z[c]).clamp(0, 1)  # line 7
            l_inv[c] = l_inv[c] + inverse_loss(model, x_check_j, x[j], x_hat[j], y[j], hyper.beta)  # line 8
        for c in set(y.tolist()):  # lines 10, 11; a class without a sample keeps its z
            (g,) = torch.autograd.grad(l_inv[c], z[c])
            state.z[c] = (z[c].detach() - hyper.alpha_inv * g.sign()).clamp(-hyper.eps_inv, hyper.eps_inv)

    model.train()  # p and the update of θ use batch statistics, so f gets the whole mini-batch
    x_check = torch.stack([(x[j] + state.z[int(y[j])]).clamp(0, 1) for j in batch])
    if one_off:  # line 13, by Eq. S2
        p = one_off_target(model, x, x_check, index, epoch, T_once, state)
    else:  # line 13, by Eq. 8
        p = probabilities(model, x_check)
        for j, i in enumerate(index.tolist()):
            if epoch >= T and i in state.p:
                p[j] = hyper.gamma * state.p[i] + (1 - hyper.gamma) * p[j]
            if epoch >= T - 1:  # so that epoch T has a previous p
                state.p[i] = p[j].clone()

    log_f = model(x_hat).log_softmax(1)
    loss = x.new_zeros(())
    for j in batch:  # line 14, Eq. 7, as the mean over the mini-batch
        cross_entropy = -log_f[j, int(y[j])]
        kl = (torch.xlogy(p[j], p[j]) - p[j] * log_f[j]).sum()  # Σ p log(p / f)
        loss = loss + (cross_entropy + hyper.lam * kl) / len(x)
    return loss


def accuracy(model: Net, x: Tensor, y: Tensor) -> float:
    model.eval()
    return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Algorithm 1, literally, on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--one-off", action="store_true", help="inverse examples in epoch T' only")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the tensors are tiny
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    x_test, y_test = x[300:500], y[300:500]

    hyper = Hyper(eps=0.2, alpha=0.05, eps_inv=0.1, alpha_inv=0.1)
    model = Net(pixels=64, classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    state = State(z=0.001 * torch.randn(10, 1, 8, 8))  # line 1

    for epoch in range(1, args.epochs + 1):  # line 2
        mean_loss = 0.0
        for index in torch.randperm(300).view(6, 50):  # line 3
            loss = uiat_step(model, x[index], y[index], index, epoch, args.epochs, state, hyper, args.one_off)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            mean_loss += loss.item() / 6
        natural = accuracy(model, x_test, y_test)
        start = torch.empty_like(x_test).uniform_(-hyper.eps, hyper.eps)
        x_hat = [pgd_attack(model, *sample, hyper) for sample in zip(x_test, y_test, start, strict=True)]
        robust = accuracy(model, torch.stack(x_hat), y_test)
        print(f"epoch {epoch}  loss {mean_loss:.3f}  natural {natural:.1%}  PGD-{hyper.steps} {robust:.1%}")


if __name__ == "__main__":
    main()
