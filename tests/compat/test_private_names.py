"""Private names of other packages are used in `skyward_nb/compat` alone. Read from the code: nothing is imported."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_collector")

PACKAGE = Path(__file__).parents[2] / "skyward_nb"
ELSEWHERE = "use it by a plain name of skyward_nb/compat, and add a case to tests/compat"

PYTHONS = {
    "os._exit": "documented: ends a process that was forked",
    "sys._current_frames": "documented: where other threads are",
    "sys._getframe": "documented: who calls",
}
OF_NAMED_TUPLES = {"_replace", "_fields", "_asdict"}
"""Documented: their underscore keeps them apart from names of fields."""
INSIDE = (
    "asyncssh.channel",
    "asyncssh.config",
    "asyncssh.connection",
    "asyncssh.encryption",
    "asyncssh.public_key",
    "cloudpickle.cloudpickle",
    "keras.src",
    "tensorflow.compiler",
    "tensorflow.python",
    "tf_keras.src",
    "torch.distributed.distributed_c10d",
    "torch.distributed.rendezvous",
)
"""Modules whose names say it in no underscore."""
_BELOW = tuple(f"{each}." for each in INSIDE)
WORDS = {
    ("reports/run_notes.py", "_object"): "an end of names of collectives",
    ("bootstrap/uv.py", "_USERNAME"): "an end of variables' names",
    ("bootstrap/uv.py", "_PASSWORD"): "an end of variables' names",
    ("node/imports.py", "_abc_impl"): "what abc puts into classes, so that it is left alone",
    ("plugins/torch_trace.py", "_c10d_functional"): "a name space of operators in a recording",
    ("plugins/torch_trace.py", "_c10d_functional_autograd"): "likewise",
    ("runtime/transformers_bars.py", "_per_second"): "an end of names of metrics",
    ("runtime/transformers_bars.py", "_runtime"): "an end of names of metrics",
    ("runtime/transformers_bars.py", "_time"): "an end of names of metrics",
    **dict.fromkeys(
        (
            ("pickling/process_bound.py", "_BaseDataLoaderIter"),
            ("pickling/reducer_table.py", "_MISSING_TYPE"),
            ("pickling/reducer_table.py", "_HAS_DEFAULT_FACTORY_CLASS"),
            ("pickling/reducer_table.py", "_KW_ONLY_TYPE"),
            ("pickling/reducer_table.py", "_FIELD_BASE"),
            ("pickling/process_bound.py", "_asyncio"),
            ("pickling/process_bound.py", "_ctypes"),
            ("pickling/process_bound.py", "_Pointer"),
            ("pickling/reducer_table.py", "_lru_cache_wrapper"),
        ),
        "by the name of its class a kind of object is known",
    ),
}
"""Text that is a word, and not asked for as a name of a package."""
PROTOCOLS = {"_render_traceback_", "_repr_pretty_"}
"""What IPython documents for classes of anybody."""
OUR_OWN = {
    ("functions/asynchronous.py", "self._pool._streams"),
    ("functions/asynchronous.py", "self._pool._submit"),
    ("functions/asynchronous.py", "self._pool._mapped"),
    ("functions/asynchronous.py", "self._pool._calls"),
    ("functions/asynchronous.py", "self._compute._is_ready"),
}
"""Private to another class of ours."""
_NAME = re.compile(r"\w+(\.\w+)*")
OURS = "_skyward_"
"""What we add to objects of others begins so."""


Nodes = list[ast.AST]
"""All of a file's."""


def nodes_of(text: str | bytes) -> Nodes:
    return list(ast.walk(ast.parse(text)))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def is_inside(module: str) -> bool:
    """Whether a dotted name leads to what is private."""
    private = "_" in module and any(map(is_private, module.split(".")))
    return private or module in INSIDE or module.startswith(_BELOW)


def own_names(nodes: Nodes) -> set[str]:
    """Names that code of ours gives: functions, classes, variables, arguments, attributes of `self`."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                found.add(node.attr)
            case ast.arg():
                found.add(node.arg)
            case _:
                pass
    return found


def remarks(nodes: Nodes) -> set[int]:
    """Expressions that are nothing but text."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def misuses(file: str, nodes: Nodes, ours: set[str]) -> Iterator[str]:
    """Each use of a private name of another package in a file; `ours` are names of all our files."""
    here, texts = own_names(nodes), remarks(nodes)
    for node in nodes:
        used = ""
        match node:
            case ast.Attribute(value=base, attr=name) if is_private(name):
                of = ast.unparse(base)
                known = ours if of in ("self", "cls", "super()") else here
                is_documented = f"{of}.{name}" in PYTHONS or name in PROTOCOLS | OF_NAMED_TUPLES
                is_own = name in known or name.startswith(OURS) or (file, f"{of}.{name}") in OUR_OWN
                if not (is_own or is_documented):
                    used = f"{of}.{name}"
            case ast.Import(names=names):
                used = next((each.name for each in names if is_inside(each.name)), "")
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] not in (
                "__future__",
                "skyward_nb",
            ):
                paths = (f"{module}.{each.name}" for each in names)
                used = next((path for path in paths if is_inside(path)), "")
            case ast.Constant(value=str(word)) if id(node) not in texts:
                is_ours = word in ours or word in PROTOCOLS or word.startswith(OURS)
                is_name = _NAME.fullmatch(word) and not is_ours and (file, word) not in WORDS
                if is_name and is_inside(word):
                    used = word
            case _:
                pass
        if used:
            yield f"skyward_nb/{file}:{node.lineno}: {used} is private to its package: {ELSEWHERE}"


@pytest.fixture(scope="module")
def code() -> dict[str, Nodes]:
    """What lies outside of `compat`, by its file."""
    files = (path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "compat")
    return {str(path.relative_to(PACKAGE)): nodes_of(path.read_bytes()) for path in files}


def test_they_are_used_nowhere_else(code):
    ours = set[str]().union(*map(own_names, code.values()))
    found = [each for file, nodes in code.items() for each in misuses(file, nodes, ours)]
    assert not found, "\n" + "\n".join(found)


def test_each_word_that_is_let_through_is_there(code):
    there = {
        (file, node.value)
        for file in {file for file, _ in WORDS} & code.keys()
        for node in code[file]
        if isinstance(node, ast.Constant)
    }
    assert WORDS.keys() <= there, f"no longer in the code, so not in WORDS: {WORDS.keys() - there}"


@pytest.mark.parametrize(
    "line",
    [
        "shell._get_exc_info()",
        "self._not_of_any_file_of_ours",
        "import torch._C",
        "import jax._src.core as core",
        "from jax._src import xla_bridge",
        "from IPython.lib.pretty import _repr_pprint",
        "from tensorflow.python.eager import context",
        "from keras.src.utils import rng_utils",
        "from asyncssh.encryption import GCMEncryption",
        "from cloudpickle import cloudpickle",
        "getattr(kernel, '_shutdown_message', None)",
        "sys.modules['torch.distributed.distributed_c10d']",
        "NEEDED = {'_recv_seq'}",
    ],
)
def test_what_is_a_misuse(line):
    (found,) = misuses("node/some.py", nodes_of(line), set())
    assert found.startswith("skyward_nb/node/some.py:1: ")


@pytest.mark.parametrize(
    "line",
    [
        "self._ours",
        "_own = 1\nother._own",
        "os._exit(0)",
        "tuple_._replace(x=1)",
        "kind.__qualname__",
        "'''Some text about _recv_seq.'''",
        "for _ in range(3): pass",
        "from skyward_nb.runtime.progress import _going",
        "getattr(error, '_render_traceback_', None)",
        "model._skyward_sum",
    ],
)
def test_what_is_none(line):
    assert not list(misuses("node/some.py", nodes_of(line), {"_ours"}))


def test_each_module_says_what_it_was_seen_with():
    for path in sorted((PACKAGE / "compat").glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert re.search(r"^Seen with \S+ [\d.]", text, re.MULTILINE), f"{path.name}: Seen with?"
