"""`framework=auto`: what a cell imports and reads decides, then what the notebook has imported."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType, SimpleNamespace

import pytest
from later import needs

from skyward_nb.cell.cell_names import cell_names
from skyward_nb.options.framework_choice import (
    NotebookContext,
    choose,
    choose_for_script,
    imports_of,
)
from skyward_nb.options.option_help import complete, help_text
from skyward_nb.options.option_line import parse
from skyward_nb.reports.source_lines import is_own
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import AUTO, WORDS
from skyward_nb.words.pool_options import PoolOptions

needs_torch = needs("torch")


def chosen(cell=None, *, past=(), names=None, modules=None, environ=None, own=()):
    """What is chosen for a cell's text, in a notebook with these names and past cells."""
    notebook = NotebookContext(
        names=names or {},
        cells=past,
        modules=modules or {},
        environ=environ or {},
        is_own=lambda root: root in own,
    )
    if cell is None:
        return choose(notebook)
    found = cell_names(cell)
    return choose(notebook, found.imports, found.reads)


def of(module, name="Value", *bases):
    """A class that says it comes from a module."""
    return type(name, bases, {"__module__": module})


def made(source, **names):
    """The names a cell of the notebook leaves behind."""
    namespace = {"__name__": "__main__", **names}
    exec(source, namespace)
    namespace.pop("__builtins__")
    return namespace


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("import torch", ["torch"]),
        ("import torch.nn as nn", ["torch"]),
        ("from torch.nn.parallel import DistributedDataParallel as DDP", ["torch"]),
        ("def train():\n    from torch import optim", ["torch"]),
        ("class Net:\n    def f(self):\n        import lightning as L", ["torch"]),
        ("import jax.numpy as jnp", ["jax"]),
        ("import flax, optax", ["jax"]),
        ("from equinox import Module", ["jax"]),
        ("import haiku as hk", ["jax"]),
        ("import tensorflow as tf", ["tensorflow"]),
        ("import tf_keras", ["tensorflow"]),
        ("import keras", ["keras"]),
        ("from transformers import AutoModel", ["huggingface"]),
        ("import torch, transformers", ["huggingface"]),
        ("import datasets", ["huggingface"]),
        ("import sentence_transformers", ["huggingface"]),
        ("from peft import LoraConfig\nimport jax", ["jax", "huggingface"]),
        ("import jax, torch", ["torch", "jax"]),
        ("import numpy as np, torchlike", []),
        ("torch = 1", []),
        ("if False:\n    import torch", ["torch"]),
    ],
)
def test_imports_of_the_cell(cell, words):
    found = chosen(cell)
    assert list(found.words) == words
    assert set(found.words) <= set(WORDS)


def test_it_says_what_it_chose_and_why():
    assert str(chosen("import torch.nn as nn")) == (
        "framework=auto: torch (the cell imports torch.nn)"
    )
    assert str(chosen("import jax, torch")) == (
        "framework=auto: torch,jax (the cell imports torch; the cell imports jax)"
    )
    assert str(chosen("model", names={"model": of("torch.nn", "Net")()})) == (
        "framework=auto: torch (the cell reads model)"
    )
    assert str(chosen("1", past=["import jax"])) == (
        "framework=auto: jax (the notebook imports jax)"
    )
    assert str(chosen("1")) == (
        "framework=auto: none (neither the cell nor the notebook imports a framework)"
    )


Tensor = of("torch", "Tensor")
Module = of("torch.nn.modules.module", "Module")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (Tensor(), "torch"),
        (of("__main__", "Net", Module)(), "torch"),
        (of("__main__", "Net", Module), "torch"),
        (of("jaxlib._jax", "ArrayImpl")(), "jax"),
        (of("keras.src.models.functional", "Functional")(), "keras"),
        (of("transformers.models.bert", "Bert", Module)(), "huggingface"),
        (of("datasets.arrow_dataset", "Dataset")(), "huggingface"),
        (ModuleType("torch.nn.functional"), "torch"),
        (FunctionType((lambda: 0).__code__, {"__name__": "optax._src.alias"}), "jax"),
        ([1, 2], None),
        (SimpleNamespace(torch=1), None),
    ],
)
def test_values_by_where_their_types_come_from(value, word):
    assert chosen("x + 1", names={"x": value}).words == ((word,) if word else ())


def test_functions_and_classes_of_the_notebook_say_it_by_what_they_use():
    names = made(
        "import functools\n"
        "def step(batch): return F.relu(batch)\n"
        "def logged(f):\n    @functools.wraps(f)\n    def inner(*a): return f(*a)\n    return inner\n"
        "@logged\ndef train(batch): return [step(each) for each in batch]\n"
        "class Trainer:\n    @classmethod\n    def of(cls): return train\n"
        "    @property\n    def plain(self): return 1\n"
        "def hidden():\n    import jax\n    return 1\n"
        "def loop(): return loop() + other()\n"
        "def other(): return loop()\n"
        "def attribute(x): return x.F\n",
        F=ModuleType("torch.nn.functional"),
    )
    for cell in ("step(1)", "train([1])", "Trainer", "Trainer()"):
        assert chosen(cell, names=names).words == ("torch",), cell
    trainer = names["Trainer"]()
    assert chosen("trainer", names={**names, "trainer": trainer}).words == ("torch",)
    assert chosen("hidden()", names=names).words == ("jax",)
    assert str(chosen("train([1])", names=names)).endswith("(the cell reads train)")
    del names["F"]
    assert chosen("loop(), attribute(1)", names=names).words == ()


def test_the_cell_decides_alone_if_it_names_any():
    names = {"torch": ModuleType("torch")}
    assert chosen("import jax", names=names, past=["import torch"]).words == ("jax",)
    assert chosen("1", names=names).words == ("torch",)


@pytest.mark.parametrize("cell", [None, "1"])
def test_the_notebooks_imports(cell):
    assert chosen(cell, names={"nn": ModuleType("torch.nn")}).words == ("torch",)
    past = ["", "x = 1", "from jax import jit", "this is no Python", "import os"]
    assert chosen(cell, past=past).words == ("jax",)
    # A value alone says nothing of what is wanted.
    assert chosen(cell, names={"old": Tensor()}).words == ()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import torch.nn as nn", "torch (the script imports torch.nn)"),
        ("import keras", "keras:jax (the script imports keras, and KERAS_BACKEND=jax)"),
        ("import datasets, torch", "torch (the script imports torch)"),
        ("import numpy", "none (the script imports no framework)"),
        ("x = = 1", "none (the script imports no framework)"),
    ],
)
def test_a_script_by_what_it_imports_itself(script, says):
    environ = {"KERAS_BACKEND": "jax"}
    found = choose_for_script(script, environ, lambda root: root == "datasets")
    assert str(found) == f"framework=auto: {says}"


def test_imports_of_past_cells_for_ranks_count():
    past = "get_ipython().run_cell_magic('sky_remote', 'nodes=2', 'import torch.nn as nn\\n')\n"
    assert "torch.nn" in imports_of(past)
    assert imports_of("get_ipython().run_cell_magic('bash', '', 'import torch')") == frozenset()


class _Keras(ModuleType):
    def __init__(self, backend):
        super().__init__("keras")
        self.config = SimpleNamespace(backend=lambda: backend)


@pytest.mark.parametrize(
    ("cell", "modules", "environ", "words", "why"),
    [
        ("import keras", {}, {}, ("keras",), "the cell imports keras"),
        ("import keras", {"keras": _Keras("jax")}, {}, ("keras:jax",), "Keras runs on jax"),
        ("import keras", {}, {"KERAS_BACKEND": "torch"}, ("keras:torch",), "KERAS_BACKEND=torch"),
        ("import keras", {"keras": _Keras("jax")}, {"KERAS_BACKEND": "torch"}, ("keras:jax",), ""),
        ("import keras, jax", {"keras": _Keras("jax")}, {}, ("keras:jax",), ""),
        ("import keras, torch", {"keras": _Keras("jax")}, {}, ("torch", "keras:jax"), ""),
        ("import keras", {"keras": _Keras("numpy")}, {}, ("keras",), ""),
        ("import keras, tensorflow", {}, {}, ("tensorflow", "keras"), ""),
        ("import torch", {"keras": _Keras("jax")}, {}, ("torch",), ""),
        ("import keras", {"keras": ModuleType("keras")}, {}, ("keras",), ""),
    ],
)
def test_keras_wins_over_what_it_runs_on(cell, modules, environ, words, why):
    found = chosen(cell, modules=modules, environ=environ)
    assert found.words == words
    assert why in str(found)


def test_a_keras_model_on_torch_is_keras():
    layer = of("keras.src.layers.layer", "Layer", of("torch.nn.modules.module", "Module"))
    found = chosen("model.fit(x)", names={"model": layer()}, modules={"keras": _Keras("torch")})
    assert found.words == ("keras:torch",)


def test_modules_of_the_project_are_no_frameworks(tmp_path, monkeypatch):
    assert chosen("import datasets", own={"datasets"}).words == ()
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "__init__.py").write_text("raise AssertionError('it is imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "accelerate", raising=False)
    assert is_own("accelerate")
    assert not is_own("json")
    assert not is_own("no_such_module_anywhere")
    assert "accelerate" not in sys.modules


def test_values_are_not_asked():
    class Proxy:
        @property
        def __class__(self):
            raise AssertionError("it is asked")

        def __getattr__(self, name):
            raise AssertionError("it is asked")

    assert chosen("x", names={"x": Proxy()}).words == ()


def test_the_word_is_read_completed_and_listed():
    assert parse("framework=auto").pool == PoolOptions(framework=AUTO)
    with pytest.raises(OptionError, match="auto chooses"):
        parse("framework=auto,torch")
    with pytest.raises(OptionError, match="did you mean auto"):
        parse("framework=aut")
    assert complete("%%sky_remote framework=a", "a") == ["auto"]
    assert "torch|keras:jax|auto|none" in help_text()


# ── in real kernels ─────────────────────────────────────────────────────────────────────


@needs_torch
@pytest.mark.torch
def test_a_cell_that_imports_torch_finds_it_ready(fresh):
    seen = []
    ran = fresh.run(
        "%%sky_remote nodes=2 framework=auto\n"
        "import torch.distributed as dist\ndist.is_initialized()",
        on_update=seen.append,
    )
    assert ran.result == "[0-1] True"
    # Meanwhile the picture says what the new pool is busy with.
    said = "".join(seen)
    assert "agent" in said
    assert "imports ▸ torch" in said
    assert "ranks ready" in said
    assert ran.picture.startswith("2 ranks finished")
    note = "framework=auto: torch (the cell imports torch.distributed)"
    assert note in ran.picture
    assert note in ran.html
    assert fresh.run("import sys; 'torch' in sys.modules").result == "False"
    # On a pool that is up it says what that has, if that is what it means.
    for line in ("framework=auto", "nodes=2 framework=auto"):
        again = fresh.run(f"%%sky_remote {line}\nimport json\n'torch' in json.__name__")
        assert again.result == "[0-1] False"
        assert "framework=auto: pool default has torch" in again.picture


@needs_torch
@pytest.mark.torch
def test_a_pool_gets_the_framework_that_a_cell_needs_and_its_ranks_keep_their_names(fresh):
    made = fresh.run(
        "%%sky_remote nodes=2\nimport os, skyward_nb as sky\nx = [sky.rank() + 5, os.getpid()]"
    )
    assert "framework" not in made.picture
    fresh.run("%%sky_remote\nNone")
    before = fresh.run("%%sky_remote\nx").result
    ran = fresh.run("%%sky_remote\nimport torch.distributed as dist\ndist.get_world_size()")
    assert ran.result == "[0-1] 2"
    assert "framework=auto: torch (the cell imports torch.distributed)" in ran.picture
    assert fresh.run("%%sky_remote\nassert os.getpid() == x[1]\nx").result == before
    assert "torch (local)" in fresh.run("%sky status").stdout
    # A new generation has it, too.
    fresh.run("%sky restart")
    assert fresh.run("%%sky_remote\nimport torch.distributed as d\nd.is_initialized()").result == (
        "[0-1] True"
    )


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_a_pool_in_the_place_of_another_has_what_the_cell_needs(fresh):
    fresh.run("%%sky_remote nodes=2\nNone")
    use = "import torch.distributed as dist\ndist.is_initialized()"
    ran = fresh.run(f"%%sky_remote nodes=1 replace dry_run\n{use}")
    assert "framework=auto: torch (the cell imports torch.distributed)" in ran.picture
    ran = fresh.run(f"%%sky_remote nodes=1 replace\n{use}")
    assert ran.result == "[0] True"
    assert "was taken down for this one" in ran.picture
    # What somebody left out stays out.
    fresh.run("%%sky_remote framework=none replace\nNone")
    assert fresh.run(f"%%sky_remote nodes=2 replace\n{use}").result == "[0-1] False"


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_a_line_adds_a_framework_to_a_pool_that_was_made_without_and_only_that(fresh):
    fresh.run("%%sky_remote nodes=2 framework=none\nx = 1")
    # Who wants none is not told that there is none.
    use = "import torch.distributed as dist\ndist.is_initialized(), 'x' in globals()"
    ran = fresh.run(f"%%sky_remote\n{use}")
    assert ran.result == "[0-1] (False, True)"
    assert "process group" not in ran.picture
    assert fresh.run(f"%%sky_remote framework=torch dry_run\n{use}").error is None
    assert "framework" not in fresh.run("%sky status").stdout
    ran = fresh.run(f"%%sky_remote framework=torch backend=gloo\n{use}")
    assert ran.result == "[0-1] (True, True)"
    ran = fresh.run(f"%%sky_remote framework=none\n{use}")
    assert ran.error[0] == "PoolError"
    assert "is up with framework=torch, and framework=none was asked for" in ran.traceback


@needs_torch
@pytest.mark.torch
def test_names_of_the_notebook_and_its_imports_decide(fresh):
    fresh.run("import torch\nweights = torch.ones(2)\nmodel = torch.nn.Linear(2, 1)")
    ran = fresh.run("%%sky_remote framework=auto dry_run\nweights.sum()")
    assert "framework=auto: torch (the cell reads weights)" in ran.picture
    assert "1 rank, torch (local)" in ran.picture
    ran = fresh.run("%%sky_remote framework=auto dry_run\n1 + 1")
    assert "framework=auto: torch (the notebook imports torch)" in ran.picture


@needs_torch
@pytest.mark.torch
@pytest.mark.extensive
def test_a_pool_that_is_brought_up_has_what_the_notebook_imports(fresh):
    fresh.run("import torch")
    up = fresh.run("%sky up framework=auto")
    assert "framework=auto: torch (the notebook imports torch)" in up.picture
    assert "1 rank, torch" in up.picture


def test_nothing_found_is_none_and_defaults_may_say_auto(fresh):
    fresh.run("%env SKYWARD_FRAMEWORK=auto")
    ran = fresh.run("%%sky_remote\nsum(range(4))")
    assert ran.result == "[0] 6"
    assert "framework=auto: none (neither the cell nor the notebook" in ran.picture
    assert "1 rank (local)" in fresh.run("%sky status").stdout
    fresh.run("%sky down")
    fresh.run("%sky config framework=none")
    assert "framework" not in fresh.run("%%sky_remote dry_run\n1").picture
    assert "framework=auto: none" in fresh.run("%%sky_remote framework=auto dry_run\n1").picture


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_a_new_pool_has_what_the_cell_itself_needs(fresh):
    fresh.run("import torch")
    ran = fresh.run("%%sky_remote dry_run\n1 + 1")
    assert "framework" not in ran.picture
    assert "1 rank (local)" in ran.picture
    ran = fresh.run("%%sky_remote dry_run\ntorch.ones(2)")
    assert "framework=auto: torch (the cell reads torch)" in ran.picture


def test_what_is_not_installed_is_not_chosen(fresh):
    ran = fresh.run("%%sky_remote dry_run\ntry:\n    import haiku\nexcept ImportError:\n    pass")
    assert "1 rank" in ran.picture


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_decorators_in_cells_are_honoured_also_where_the_cell_defines_the_function(fresh):
    fresh.run(
        "import os, skyward_nb as sky\n"
        "@sky.stdout(only='head')\n@sky.integrations.torch(backend='gloo')\n"
        "def train():\n"
        "    import torch.distributed as dist\n"
        "    print('rank', dist.get_rank(), flush=True)\n    os.system('echo a child')\n"
        "    return dist.get_backend()"
    )
    ran = fresh.run("%%sky_remote nodes=2\ntrain()")
    assert ran.result == "[0-1] 'gloo'"
    assert "[0] rank 0" in ran.picture
    assert "] rank 1" not in ran.picture
    assert ran.picture.count("a child") == 1
    # The log has what was not shown.
    assert "rank 1" in fresh.run("%sky logs").stdout
    ran = fresh.run(
        "%%sky_remote\n@sky.silent\n@sky.integrations.torch()\ndef again():\n    print('never')\n"
        "    1 / 0\n\nprint('before')\nagain()"
    )
    assert "never" not in ran.picture
    assert "before" in ran.picture
    # The frames are the user's own.
    assert ran.error[0] == "ZeroDivisionError"
    assert "output_gate" not in ran.traceback
    assert fresh.run("%%sky_remote\nprint('heard')").picture.count("heard") == 1
    ran = fresh.run(
        "%%sky_remote dry_run pool=b\n@sky.integrations.keras(backend='torch')\ndef f(): ..."
    )
    assert "keras:torch" in ran.picture


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_nodes_that_stand_alone_have_no_group_and_that_is_said(fresh):
    cell = "import torch.distributed as dist\ndist.is_initialized()"
    said = "no process group of torch: with cluster=no each node stands alone"
    for line in ("nodes=2 cluster=no", ""):
        ran = fresh.run(f"%%sky_remote {line}\n{cell}")
        assert ran.result == "[0-1] False"
        assert said in ran.picture
