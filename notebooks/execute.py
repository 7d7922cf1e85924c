"""Run notebooks in a real kernel, keep them and their HTML in `build/`, print what they gave.

    python notebooks/execute.py notebooks/01_quickstart.ipynb

Exits with 1 when a cell raised; what was executed is kept all the same.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter
from traitlets.config import Config

BUILD = Path("build")


def execute(path: Path, config: Config | None = None) -> bool:
    """Run one notebook, in a kernel of this configuration; returns whether every cell went well."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        store_widget_state=False,
        config=config,
        resources={"metadata": {"path": str(path.parent)}},
    )
    began = time.monotonic()
    error = None
    try:
        client.execute()
    except CellExecutionError as raised:
        error = raised
    took = time.monotonic() - began
    BUILD.mkdir(exist_ok=True)
    nbformat.write(notebook, BUILD / path.name)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    page = BUILD / path.with_suffix(".html").name
    page.write_text(html)
    print(f"── {path} · {took:.1f} s ──")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            _print_outputs(cell)
    if error is not None:
        print(error)
    print(f"\nkept: {BUILD / path.name} and {page}")
    return error is None


def _print_outputs(cell: nbformat.NotebookNode) -> None:
    for output in cell.outputs:
        if output.output_type == "stream":
            print(output.text.rstrip())
        elif "text/plain" in output.get("data", {}):
            print(output.data["text/plain"].rstrip())


if __name__ == "__main__":
    results = [execute(Path(name)) for name in sys.argv[1:]]
    sys.exit(0 if all(results) and results else 1)
