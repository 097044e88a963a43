"""Every public name has a docstring with an example, and the examples run."""

import doctest
from pathlib import Path

import pytest
import torch
from torch import nn

import uiat
from uiat.runs.run_folder import RunFolder

OBJECTS = [name for name in uiat.__all__ if callable(getattr(uiat, name))]


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize("name", OBJECTS)
def test_its_example_runs(name: str, finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "b").symlink_to(finished_run.path)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([3, 1, 4, 1])
    names = {
        **{public: getattr(uiat, public) for public in uiat.__all__},
        **{"torch": torch, "x": x, "y": y, "model": network(), "helper": network()},
        "batch": uiat.Batch(x, y, torch.arange(4)),
        "data": uiat.DataSpec(num_classes=10, num_samples=4, shape=(1, 8, 8)),
    }
    found = doctest.DocTestFinder(recurse=False).find(getattr(uiat, name), name, globs=names)
    examples = [test for test in found if test.examples]
    assert examples, f"{name} has no example in its docstring"
    report: list[str] = []
    for test in examples:
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert report == []


def test_the_rest_is_data() -> None:
    """METHODS maps names to configurations; __version__ is a string."""
    assert sorted(set(uiat.__all__) - set(OBJECTS)) == ["METHODS", "__version__"]
