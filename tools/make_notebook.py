"""Make the notebook of the examples from its script: `make notebook`. Equal scripts give equal files, cell ids too."""

from pathlib import Path

import jupytext
import nbformat

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "friend_or_enemy.py"
NOTEBOOK = SCRIPT.with_suffix(".ipynb")


def notebook() -> nbformat.NotebookNode:
    """Return the notebook of the script, without outputs."""
    made: nbformat.NotebookNode = jupytext.read(SCRIPT, fmt="py:percent")
    made.metadata.pop("jupytext")
    for k, cell in enumerate(made.cells, 1):
        cell.id, cell.metadata = f"cell-{k}", {}
    return made


if __name__ == "__main__":
    nbformat.write(notebook(), NOTEBOOK)  # type: ignore[no-untyped-call]
