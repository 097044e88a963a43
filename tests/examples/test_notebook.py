"""The notebook: generated from its script, and executed on a fresh kernel."""

import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.processes import ROOT
from tools.make_notebook import NOTEBOOK, WIDGET, execute, notebook

SAME = """
from copy import deepcopy
from examples.uiat_in_one_file import Hyper, State, uiat_step

radii = dict(eps=EPS, alpha=EPS / 4, eps_inv=EPS_INV, alpha_inv=ALPHA_INV)
hyper = Hyper(lam=LAM, beta=BETA, gamma=GAMMA, momentum_from=T, **radii)
ours, theirs = deepcopy(friendly).double(), deepcopy(friendly).double()
index = torch.arange(12)
x, y = x_train[index].double(), y_train[index]
z, p = EPS_INV * (2 * torch.rand(10, 1, 8, 8).double() - 1), torch.zeros(12, 10).double()
state = State(z=z.clone())
for epoch in (T - 1, T, T + 1):
    torch.manual_seed(epoch)
    a = uiat_loss(ours, x, y, epoch, z, p)
    torch.manual_seed(epoch)
    b = uiat_step(theirs, x, y, index, epoch, EPOCHS, state, hyper)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(z, state.z)
    torch.testing.assert_close(p, torch.stack([state.p[i] for i in range(12)]))
print("the same")
show(-0.1, 3)
"""
"""Run after the notebook: its Algorithm 1 is that of the example with all loops, and its slider draws a figure."""
DIGITS = re.compile(r" *\d+(?:\.\d+)?")
LINE = re.compile(r"(natural training|UIAT) +(natural|pgd-20) +([\d.]+)%")


def kinds(made: nbformat.NotebookNode) -> list[list[str]]:
    """Return the outputs of each code cell but the slider: printed text with its digits masked, or the type of data."""
    shown = []
    for cell in made.cells:
        if cell.cell_type == "code":
            outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
            shown.append([DIGITS.sub("0", o.text) if "text" in o else ", ".join(sorted(o.data)) for o in outputs])
    return shown


def test_it_is_what_its_script_makes() -> None:
    committed = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(committed)
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "executed once, from top to bottom"
    assert code[0].source.startswith("# %pip install '..[all]'")
    assert [len(outputs) for outputs in kinds(committed)].count(1) == 5 + 1, "five figures, and a table"
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    assert committed == notebook(), "run `make notebook`"


def test_it_is_small_and_tells_nothing_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text.encode()) < 500_000
    assert not re.search(r"/(?:home|root|tmp|Users)/", text)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel of this interpreter, visible only to this test."""
    folder = tmp_path / "kernels" / "fresh"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "fresh", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel shows figures inline
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return "fresh"


@pytest.mark.slow
def test_it_runs_whole(kernel: str, tmp_path: Path) -> None:
    """Five figures and a slider; UIAT is robust where natural training is not; its step equals the other example."""
    made = notebook()
    made.cells.append(nbformat.v4.new_code_cell(SAME))
    execute(made, tmp_path, kernel)
    assert kinds(made)[:-1] == kinds(nbformat.read(NOTEBOOK, as_version=4)), "run `make notebook`"
    outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.data for output in outputs if output.output_type == "display_data"]
    assert len([data for data in shown if "image/png" in data]) == 5 + 1
    results = [output.data for output in outputs if output.output_type == "execute_result"]
    assert [WIDGET in data for data in results] == [True]
    streams = {output.name for output in outputs if output.output_type == "stream"}
    assert streams == {"stdout"}
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    accuracy = {(name, attack): float(value) for name, attack, value in LINE.findall(printed)}
    assert min(accuracy["UIAT", "natural"], accuracy["natural training", "natural"]) > 80
    assert accuracy["UIAT", "pgd-20"] > 30 > accuracy["natural training", "pgd-20"]
    assert printed.endswith("the same\n")
