"""Adversarial training with inverse adversarial examples (IAT, UIAT, one-off UIAT) and its baselines.

Compute a method's loss in a custom training loop:

    method = UIAT(lam=3.5).build(DataSpec(num_classes=10, num_samples=50_000, shape=(3, 32, 32)))
    loss = method(model, Batch(x, y, index), Clock(epoch, step, epochs)).total

Train a network on images in memory:

    result = fit(model, (x, y), method="uiat", epochs=30, eps=8 / 255)

Evaluate the robustness of a network:

    result = evaluate(model, x, y, attacks=("natural", "pgd-20", "autoattack"), eps=8 / 255)

Load a trained network from a run, an export, or the Hub:

    model = load("runs/b")
"""

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import: this file imports nothing

if TYPE_CHECKING:
    from uiat.attacks import FGSM, NFGSM, PGD, RSFGSM
    from uiat.averaging import AveragedWeights
    from uiat.engine.fit import fit
    from uiat.errors import UserError
    from uiat.evaluation.evaluator import evaluate
    from uiat.methods import (
        HAT,
        IAT,
        MART,
        METHODS,
        SAT,
        TRADES,
        UIAT,
        GradAlign,
        LossOf,
        Natural,
        SingleStep,
        UIATOneOff,
    )
    from uiat.methods.weight_perturbation import perturb_weights
    from uiat.models.fast import speed_up, to_channels_last
    from uiat.models.wrappers import Normalized, logits_of
    from uiat.runs.saved import images, load
    from uiat.targets import InstanceInverse, Momentum, OneOff, UniversalInverse
    from uiat.types import Batch, Clock, DataSpec, Loss
    from uiat.wrap import indexed
else:

    def __getattr__(name: str) -> object:
        """Import a public name on first access, so that the command line starts without waiting for torch."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        places = {
            "AveragedWeights": "averaging",
            "UserError": "errors",
            "evaluate": "evaluation.evaluator",
            "indexed": "wrap",
            "fit": "engine.fit",
            "perturb_weights": "methods.weight_perturbation",
            "speed_up": "models.fast",
            "to_channels_last": "models.fast",
            **dict.fromkeys(("images", "load"), "runs.saved"),
            **dict.fromkeys(("FGSM", "NFGSM", "PGD", "RSFGSM"), "attacks"),
            **dict.fromkeys(("InstanceInverse", "Momentum", "OneOff", "UniversalInverse"), "targets"),
            **dict.fromkeys(("Batch", "Clock", "DataSpec", "Loss"), "types"),
            **dict.fromkeys(("Normalized", "logits_of"), "models.wrappers"),
        }
        return getattr(import_module(f"uiat.{places.get(name, 'methods')}"), name)


__version__ = "0.2.0"

__all__ = [
    "FGSM",
    "HAT",
    "IAT",
    "MART",
    "METHODS",
    "NFGSM",
    "PGD",
    "RSFGSM",
    "SAT",
    "TRADES",
    "UIAT",
    "AveragedWeights",
    "Batch",
    "Clock",
    "DataSpec",
    "GradAlign",
    "InstanceInverse",
    "Loss",
    "LossOf",
    "Momentum",
    "Natural",
    "Normalized",
    "OneOff",
    "SingleStep",
    "UIATOneOff",
    "UniversalInverse",
    "UserError",
    "__version__",
    "evaluate",
    "fit",
    "images",
    "indexed",
    "load",
    "logits_of",
    "perturb_weights",
    "speed_up",
    "to_channels_last",
]
