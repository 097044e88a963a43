"""Make the notebook of the examples from its script, and execute it: `make notebook`.

Cells and their ids are those of the script. Of the outputs, pixels and the digits of accuracies depend on the CPU.
"""

import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "friend_or_enemy.py"
NOTEBOOK = SCRIPT.with_suffix(".ipynb")
WIDGET = "application/vnd.jupyter.widget-view+json"


def notebook() -> nbformat.NotebookNode:
    """Return the notebook of the script, without outputs."""
    made: nbformat.NotebookNode = jupytext.read(SCRIPT, fmt="py:percent")
    made.metadata.pop("jupytext")
    for k, cell in enumerate(made.cells, 1):
        cell.id, cell.metadata = f"cell-{k}", {}
    return made


def execute(made: nbformat.NotebookNode, folder: Path, kernel: str = "python3") -> None:
    """Add the outputs of a new kernel that works in a folder."""
    NotebookClient(
        made,
        kernel_name=kernel,
        timeout=1200,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    ).execute()


def remove_kernel(made: nbformat.NotebookNode) -> None:
    """Remove what only the kernel that executed the notebook could use: the slider, and its own description."""
    made.metadata = notebook().metadata
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = notebook()
        execute(made, Path(folder))
    remove_kernel(made)
    nbformat.write(made, NOTEBOOK)  # type: ignore[no-untyped-call]
