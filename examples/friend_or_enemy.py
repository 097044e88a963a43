# ---
# jupyter:
#   jupytext:
#     cell_markers: '"""'
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# Friend or enemy

An adversarial example x̂ of an image raises the loss: the enemy. An *inverse* adversarial example x̌ lowers it: the
friend. Algorithm 1 of *The Enemy of My Enemy is My Friend* (CVPR 2023), UIAT, pulls the prediction on x̂ towards the
prediction on x̌.

Here it is written out on scikit-learn's 8×8 digits: less than a minute on one core of a CPU. The names are those of the
paper. `examples/uiat_in_one_file.py` is the same with every loop of the paper.
"""

# %%
# # %pip install '..[all]' ipywidgets  # in a clone, from its folder examples

import ipywidgets as widgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as nnf
from matplotlib.axes import Axes
from sklearn.datasets import load_digits
from torch import Tensor, nn

from uiat import evaluate

torch.set_num_threads(1)  # the network is tiny
images, labels = load_digits(return_X_y=True)
x_all, y_all = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
train_part, test_part = torch.randperm(len(y_all), generator=torch.Generator().manual_seed(0)).split(1437)
x_train, y_train, x_test, y_test = x_all[train_part], y_all[train_part], x_all[test_part], y_all[test_part]

# %% [markdown]
"""
## A network

F(x) are its features, f(x) = head(F(x)) its logits. Inputs lie in [0, 1].
"""


# %%
class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(16, 32, 3, 2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.features = nn.Sequential(first, second, nn.Flatten())
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        out: Tensor = self.head(self.features(x))
        return out


# %% [markdown]
"""
## The enemy, and the friend of one image

PGD (Eq. 1) climbs the loss by steps along the sign of its gradient and stays within ε of x. Climb down instead, and you
are with a friend: a negative ε stands for that here.
"""


# %%
def pgd(model: Net, x: Tensor, y: Tensor, eps: float, start: Tensor | None = None) -> Tensor:
    """Ten steps of ε/4, up the loss to an enemy (ε > 0) or down to a friend (ε < 0)."""
    x_adv = (x if start is None else x + start).clamp(0, 1)
    for _ in range(10):
        x_adv = x_adv.detach().requires_grad_()
        (g,) = torch.autograd.grad(nnf.cross_entropy(model(x_adv), y, reduction="sum"), x_adv)
        x_adv = x_adv + eps / 4 * g.sign()
        x_adv = torch.clamp(x_adv, x - abs(eps), x + abs(eps)).clamp(0, 1)
    return x_adv.detach()


# %% [markdown]
"""
## Algorithm 1

UIAT's friend is x̌ = x + z_y: one perturbation z_c for all images of a class c, which takes one step a mini-batch. It
descends Eq. 4: be classified well, stay near the features of x, get away from those of x̂.
"""

# %%
EPS, EPS_INV, ALPHA_INV = 0.2, 0.1, 0.1  # ε, ε' and α': fair radii for digits, where CIFAR-10 has 8/255 and 4/255
LAM, BETA, GAMMA = 3.5, 1.0, 0.9  # λ of Eq. 7, β of Eq. 4, γ of Eq. 8
EPOCHS, T = 12, 9  # from epoch T on, p has momentum


def inverse_loss(model: Net, x_check: Tensor, x: Tensor, x_hat: Tensor, y: Tensor) -> Tensor:
    """Eq. 4, summed over the mini-batch."""
    with torch.no_grad():
        F_x, F_hat = model.features(x), model.features(x_hat)
    F_check = model.features(x_check)
    near, far = (F_check - F_x).abs().mean(1).sum(), (F_check - F_hat).abs().mean(1).sum()
    l_inv: Tensor = nnf.cross_entropy(model.head(F_check), y, reduction="sum") + BETA * (near - far)
    return l_inv


def uiat_loss(model: Net, x: Tensor, y: Tensor, epoch: int, z: Tensor, p_before: Tensor) -> Tensor:
    """Algorithm 1 for one mini-batch: the loss to descend; z and p_before (of these samples) are updated in place."""
    model.eval()  # crafting uses BatchNorm's running statistics
    x_hat = pgd(model, x, y, EPS, torch.empty_like(x).uniform_(-EPS, EPS))  # line 6

    z_now = z.clone().requires_grad_()
    l_inv = inverse_loss(model, (x + z_now[y]).clamp(0, 1), x, x_hat, y)  # lines 7, 8
    (g,) = torch.autograd.grad(l_inv, z_now)
    z.sub_(ALPHA_INV * g.sign()).clamp_(-EPS_INV, EPS_INV)  # lines 10, 11; the gradient of a class not here is 0

    model.train()
    p = model((x + z[y]).clamp(0, 1)).softmax(1).detach()  # line 13: the prediction on the friend
    if epoch >= T:
        p = GAMMA * p_before + (1 - GAMMA) * p  # Eq. 8
    p_before.copy_(p)

    log_f = model(x_hat).log_softmax(1)  # line 14, Eq. 7: learn the label, and agree with the friend
    return nnf.nll_loss(log_f, y) + LAM * nnf.kl_div(log_f, p, reduction="batchmean")


# %% [markdown]
"""
## Training

Two networks from the same initial weights: one trained on natural images, one by UIAT.
"""


# %%
def accuracy(model: Net, x: Tensor, y: Tensor) -> float:
    """Return the accuracy in per cent."""
    return 100 * float((model(x).argmax(1) == y).float().mean())


def train(uiat: bool) -> tuple[Net, Tensor, list[tuple[float, float]]]:
    """Return a network, its z, and its accuracy on test images, natural and under PGD, after every epoch."""
    torch.manual_seed(0)
    model, history = Net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    z, p = 0.001 * torch.randn(10, 1, 8, 8), torch.zeros(len(x_train), 10)  # line 1
    for epoch in range(1, EPOCHS + 1):
        for index in torch.randperm(len(x_train)).split(64):
            x, y, p_before = x_train[index], y_train[index], p[index]
            model.train()
            loss = uiat_loss(model, x, y, epoch, z, p_before) if uiat else nnf.cross_entropy(model(x), y)
            p[index] = p_before
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        model.eval()
        history.append((accuracy(model, x_test, y_test), accuracy(model, pgd(model, x_test, y_test, EPS), y_test)))
    return model, z, history


natural, _, natural_history = train(uiat=False)
friendly, z, friendly_history = train(uiat=True)
NETWORKS = {"natural training": natural, "UIAT": friendly}

# %%
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, history, colour in (("natural training", natural_history, "C1"), ("UIAT", friendly_history, "C0")):
    clean, attacked = zip(*history, strict=True)
    ax.plot(range(1, EPOCHS + 1), clean, colour, ls="--", label=f"{name}: natural images")
    ax.plot(range(1, EPOCHS + 1), attacked, colour, label=f"{name}: under PGD-10, ε = {EPS}")
ax.set(xlabel="epoch", ylabel="accuracy on test images, %", ylim=(0, 102))
ax.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.08))
plt.show()

# %% [markdown]
"""
## A friend, seen

First what the friends of a class share: z_c, white where it brightens a pixel and black where it darkens one. A step is
as long as ε', so z_c is ε', 0 or −ε' at every pixel.
"""

# %%
fig, axes = plt.subplots(1, 10, figsize=(9, 1.3), layout="constrained")
for c, ax in enumerate(axes):
    ax.imshow(z[c, 0], cmap="gray", vmin=-EPS_INV, vmax=EPS_INV)
    ax.set_title(f"$z_{c}$")
    ax.set_axis_off()
plt.show()

# %% [markdown]
"""
Then one image, which its friend helps and its enemy harms the most: x̌, x and x̂, and under each what the UIAT network
makes of it. p, towards which training pulls the rightmost bars, are the leftmost ones.
"""


# %%
def probabilities(model: Net, x: Tensor) -> Tensor:
    """Return f(x) as probabilities."""
    p: Tensor = model(x).softmax(1).detach()
    return p


def bars(ax: Axes, p: Tensor, true: int) -> None:
    """Draw the ten probabilities; the true class is dark."""
    ax.bar(range(10), p.tolist(), color=["C0" if c == true else "0.75" for c in range(10)])
    ax.set(xticks=range(10), ylim=(0, 1))


x_check, x_hat = (x_test + z[y_test]).clamp(0, 1), pgd(friendly, x_test, y_test, EPS)
of_true = [probabilities(friendly, x)[range(len(y_test)), y_test] for x in (x_check, x_hat)]
best = int((of_true[0] - of_true[1]).argmax())
true = int(y_test[best])
fig, axes = plt.subplots(2, 3, figsize=(8, 4.2), height_ratios=(3, 2), layout="constrained")
shown = {"friend x̌, gives p": x_check, "image x": x_test, "enemy x̂": x_hat}
for (title, x), (above, below) in zip(shown.items(), axes.T, strict=True):
    p = probabilities(friendly, x[best : best + 1])[0]
    above.imshow(x[best, 0], cmap="gray", vmin=0, vmax=1)
    above.set_title(f"{title}\nsays {int(p.argmax())}; p({true}) = {float(p[true]):.2f}", fontsize=10)
    above.set_axis_off()
    bars(below, p, true)
plt.show()

# %% [markdown]
"""
## From friend to enemy

Accuracy against ε: on the left of 0 every image is helped, on the right attacked.
"""

# %%
radii = [round(-0.2 + 0.05 * k, 2) for k in range(11)]
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (name, model), colour in zip(NETWORKS.items(), ("C1", "C0"), strict=True):
    ax.plot(radii, [accuracy(model, pgd(model, x_test, y_test, eps), y_test) for eps in radii], colour, label=name)
ax.axvline(0, color="0.8", zorder=0)
ax.set(xlabel="ε (friend < 0 < enemy)", ylabel="accuracy on test images, %", ylim=(0, 102))
ax.legend()
plt.show()

# %% [markdown]
"""
The same image at seven ε, for both networks: what each takes it for, and the probability of the true class.
"""

# %%
strip = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
x, y = x_test[best : best + 1], y_test[best : best + 1]
fig, grid = plt.subplots(2, len(strip), figsize=(9, 3.3), layout="constrained")
for (name, model), row in zip(NETWORKS.items(), grid, strict=True):
    for eps, ax in zip(strip, row, strict=True):
        x_eps = pgd(model, x, y, eps)
        p = probabilities(model, x_eps)[0]
        ax.imshow(x_eps[0, 0], cmap="gray", vmin=0, vmax=1)
        ax.set(title=f"ε = {eps:g}" if model is natural else "", xticks=[], yticks=[])
        ax.set_xlabel(f"{int(p.argmax())}, p({true}) = {float(p[true]):.2f}", fontsize=8)
    row[0].set_ylabel(name)
plt.show()

# %% [markdown]
"""
And as a slider, for any test image. It needs a running kernel; the figure above has some of its positions.
"""


# %%
def show(eps: float, image: int) -> None:
    """Draw a test image at a radius, and what both networks make of it."""
    x, y = x_test[image : image + 1], y_test[image : image + 1]
    _, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
    for (name, model), left, right in zip(NETWORKS.items(), axes[::2], axes[1::2], strict=True):
        x_eps = pgd(model, x, y, eps)
        left.imshow(x_eps[0, 0], cmap="gray", vmin=0, vmax=1)
        left.set_title(f"{name}, ε = {eps:+.2f}", fontsize=10)
        left.set_axis_off()
        bars(right, probabilities(model, x_eps)[0], int(y))
    plt.show()


widgets.interactive(
    show,
    eps=widgets.FloatSlider(min=-0.2, max=0.3, step=0.01, value=0.0, description="ε"),
    image=widgets.IntSlider(min=0, max=len(x_test) - 1, value=best),
)

# %% [markdown]
"""
## With the package

`evaluate` measures any network, with a 95 % interval for each accuracy. In your training loop, `UIAT().build(…)` takes
the place of `uiat_loss`: `examples/plug_in.py`.
"""

# %%
for name, model in NETWORKS.items():
    result = evaluate(model, x_test, y_test, attacks=("natural", "pgd-20"), eps=EPS)
    for attack, found in result.items():
        low, high = found.interval
        print(f"{name:16}  {attack:8}{found.accuracy:7.1%}  ({low:.1%} to {high:.1%})")
