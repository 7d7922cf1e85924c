"""The lines by which models are wrapped again for a new process group, from those that wrapped them. Pure."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

_WRAPPERS = ("DDP", "DistributedDataParallel")


def wrapping_lines(cells: Iterable[str]) -> tuple[str, ...]:
    """`model = DDP(model.module)` for each name that cells last bound to such a model."""
    return tuple({name: line for text in cells for name, line in _wrapped(text)}.values())


def _wrapped(text: str) -> Iterator[tuple[str, str]]:
    if not any(word in text for word in _WRAPPERS):
        return
    body = text.partition("\n")[2] if text.lstrip().startswith("%%") else text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were told when the cell ran
            nodes = [*ast.walk(ast.parse(body))]
    except SyntaxError:
        return
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[_, *others]) as call):
                if ast.unparse(call.func).rpartition(".")[2] in _WRAPPERS:
                    inner = ast.Attribute(ast.Name(name), "module")
                    again = ast.Call(call.func, [inner, *others], call.keywords)
                    yield name, f"{name} = {ast.unparse(again)}"
            case _:
                pass
