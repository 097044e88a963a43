"""`model.onnx`, for runtimes other than PyTorch."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from uiat.errors import UserError
from uiat.io import atomic
from uiat.types import DataSpec

ONNX = "model.onnx"


def check_onnx() -> None:
    """Raise a `UserError` that says what to install, if need be."""
    if find_spec("onnx") is None:
        raise UserError("--onnx needs the package onnx: install it with `pip install onnx`.")


def write_onnx(model: nn.Module, data: DataSpec, path: Path) -> None:
    """Write the network with an input `x` (N, …) and an output `logits` (N, classes), for any N."""
    x = torch.rand((2, *data.shape), generator=torch.Generator().manual_seed(0))
    batch = {0: "batch"}
    with atomic(path) as temporary, warnings.catch_warnings():
        # The exporter of TorchScript is deprecated, but it needs onnx alone, and the new one onnxscript as well.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                model,
                (x,),
                str(temporary),
                input_names=["x"],
                output_names=["logits"],
                dynamic_axes={"x": batch, "logits": batch},
                dynamo=False,
            )
        except Exception as error:  # the exporter fails in many ways on operations that ONNX lacks
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(f"the network cannot be written as ONNX ({reason}): export without --onnx.") from error
