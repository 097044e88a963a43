"""The loss of several processes, with the DistributedDataParallel of each supported version of torch."""

import warnings

import pytest
from torch import nn

from tests.support.networks import data
from uiat.engine import state
from uiat.engine.state import Parallel
from uiat.methods import METHODS


class Older(nn.Module):
    """The signature before torch 2.13."""

    def __init__(self, module: nn.Module, broadcast_buffers: bool = True):
        super().__init__()
        self.module, self.given = module, {"broadcast_buffers": broadcast_buffers}


class Newer(nn.Module):
    """The signature from torch 2.13 on, which warns of the old name."""

    def __init__(
        self, module: nn.Module, broadcast_buffers: bool | None = None, forward_sync_buffers: bool | None = None
    ):
        super().__init__()
        if broadcast_buffers is not None:
            warnings.warn("`broadcast_buffers` is deprecated.", FutureWarning, stacklevel=2)
        self.module, self.given = module, {"forward_sync_buffers": forward_sync_buffers}


class Newest(nn.Module):
    """The signature without the old name."""

    def __init__(self, module: nn.Module, forward_sync_buffers: bool | None = None):
        super().__init__()
        self.module, self.given = module, {"forward_sync_buffers": forward_sync_buffers}


@pytest.mark.parametrize("wrapper", [Older, Newer, Newest])
def test_no_version_broadcasts_buffers_in_a_forward(wrapper: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "DistributedDataParallel", wrapper)
    monkeypatch.setattr(state, "world", lambda: 2)
    model, method = nn.Linear(4, 2), METHODS["sat"].build(data())
    wrapped = Parallel(model, method).loss
    assert isinstance(wrapped, wrapper)
    assert set(vars(wrapped)["given"].values()) == {False}
    assert wrapped.get_submodule("module.model") is model
