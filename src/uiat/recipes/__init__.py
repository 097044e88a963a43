"""Registry of recipes: functions that return a full configuration, by the name data-model-method."""

from collections.abc import Callable
from functools import partial

from uiat.config import AnyConfig
from uiat.errors import unknown
from uiat.methods import METHODS
from uiat.recipes import paper, plus, small

Recipe = Callable[[], AnyConfig]

DEFAULT_RECIPE = "digits-resnet8-uiat"
CUSTOM_DATA_RECIPE = "own-resnet8-n-fgsm-uiat"
"""The default if `--data` names custom data: the method that docs/results.md advises."""

MULTI_STEP = ("natural", "sat", "trades", "mart", "hat", "iat", "uiat", "uiat-oneoff")
SINGLE_STEP = tuple(name for name in METHODS if name not in MULTI_STEP)

SMALL: dict[str, Recipe] = {
    **{f"digits-resnet8-{m}": partial(small.digits, m) for m in METHODS},
    **{f"fashion-mnist-resnet8-{m}": partial(small.fashion_mnist, m) for m in METHODS},
    **{f"cifar10-resnet8-{m}": partial(small.cifar10_small, m) for m in METHODS},
}
PAPER: dict[str, Recipe] = {
    **{f"cifar10-resnet18-{m}": partial(paper.cifar10, "resnet18", m) for m in MULTI_STEP},
    **{f"cifar100-resnet18-{m}": partial(paper.cifar100, "resnet18", m) for m in MULTI_STEP},
    **{f"svhn-resnet18-{m}": partial(paper.svhn, "resnet18", m) for m in MULTI_STEP},
    **{f"cifar10-{w}-{m}": partial(paper.cifar10, w, m) for w in ("wrn-28-10", "wrn-34-10") for m in MULTI_STEP},
    **{f"cifar10-preactresnet18-{m}": partial(paper.single_step, "preactresnet18", m) for m in SINGLE_STEP},
    **{
        f"{name}-ddpm-{w}-{m}": partial(build, w, m)
        for name, build in (("cifar10", paper.cifar10_ddpm), ("cifar100", paper.cifar100_ddpm))
        for w in paper.GENERATED_MODELS
        for m in paper.GENERATED_METHODS
    },
}
PLUS_RECIPES: dict[str, Recipe] = {
    "cifar10-resnet8-uiat-plus": plus.plus_at_small_size,
    "cifar10-resnet18-uiat-plus": plus.plus_at_paper_size,
}
CUSTOM_DATA: dict[str, Recipe] = {
    f"own-{model}-{m}": partial(small.custom, model, m) for model in ("resnet8", "resnet18") for m in METHODS
}
RECIPE_GROUPS: dict[str, dict[str, Recipe]] = {
    "for a CPU": SMALL,
    "the paper's own settings, for a GPU": PAPER,
    "plus: one-off UIAT with more, not of the paper": PLUS_RECIPES,
    "custom images": CUSTOM_DATA,
}
"""The recipes of the package, by purpose."""
RECIPES: dict[str, Recipe] = {name: recipe for group in RECIPE_GROUPS.values() for name, recipe in group.items()}
"""All recipes, including those that imported modules register."""


def get_recipe(name: str) -> AnyConfig:
    """Return a recipe's configuration."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()


def describe_recipe(name: str) -> str:
    """Return the one-line description of a recipe: the first line of its function's docstring."""
    recipe = RECIPES[name]
    function = recipe.func if isinstance(recipe, partial) else recipe
    return (function.__doc__ or "").strip().splitlines()[0]
