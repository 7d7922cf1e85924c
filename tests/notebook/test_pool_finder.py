"""Which pool a line means, decided without one: what is up is a value."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from later import needs
from pools import cell

import skyward_nb as sky
from skyward_nb.notebook.pool_finder import PoolFinder
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.spec import PoolSpec

IMPORTS = "import keras"


@pytest.fixture
def resolve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delitem(
        sys.modules, "keras", raising=False
    )  # another test's, with a backend of its own

    @sky.integrations.keras(backend="torch")
    def decorated(): ...

    def resolved(line, body, up="nodes=2 framework=jax,keras:jax"):
        pool = SimpleNamespace(spec=spec_of(PoolSpec(), parse(up).pool))
        every_cell = SimpleNamespace(defaults=[])
        pools = SimpleNamespace(live=lambda _: pool, lost=lambda _: None, every_cell=every_cell)
        shell = SimpleNamespace(user_ns={"decorated": decorated})
        finder = PoolFinder(shell, SimpleNamespace(past=list), pools)
        meant = finder.resolve(parse(line), cell(body))
        return meant, pool

    return resolved


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("framework=auto replace", IMPORTS),
        ("replace", "decorated()"),
        ("framework=auto replace", "decorated()"),
    ],
)
def test_a_pool_with_another_variant_is_replaced_in_one_step(resolve, line, body):
    meant, pool = resolve(line, body)
    assert meant.pool is None
    assert meant.replaced is pool
    assert meant.spec.framework == ("jax", "keras:torch")
    assert meant.spec.nodes == 2


def test_a_variable_that_is_set_or_taken_back_counts_from_the_next_cell_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pools = SimpleNamespace(every_cell=SimpleNamespace(defaults=[]))
    finder = PoolFinder(SimpleNamespace(user_ns={}), SimpleNamespace(past=list), pools)
    asked = parse("")

    def now():
        cell = finder.completed(asked).cell
        return cell.timeout, cell.quiet

    before = now()
    monkeypatch.setenv("SKYWARD_TIMEOUT", "10m")
    monkeypatch.setenv("SKYWARD_QUIET", "1")
    assert now() == (600.0, True)
    monkeypatch.delenv("SKYWARD_TIMEOUT")
    assert now() == (before[0], True)
    monkeypatch.setenv("SKYWARD_QUIET", "")
    assert now() == before
    broken = tmp_path / "pyproject.toml"
    broken.write_text("[tool.skyward]\nnods = 2\n")
    monkeypatch.setenv("OF_OTHERS", "1")
    assert now() == before
    monkeypatch.setenv("SKYWARD_TIMEOUT", "20m")
    for _ in range(2):
        with pytest.raises(OptionError, match="nods"):
            now()
    broken.unlink()
    assert now() == (1200.0, before[1])


def test_one_that_an_earlier_kernel_left_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = SimpleNamespace(entry=SimpleNamespace(spec=PoolSpec(nodes=2)))
    pool = SimpleNamespace(spec=left.entry.spec, lifecycle=SimpleNamespace(forked_by_other=""))
    adopted, told = [], []
    pools = SimpleNamespace(
        live=lambda _: None,
        lost=lambda _: None,
        left_over=lambda _: left,
        adopt=lambda *_: adopted.append(pool) or pool,
        every_cell=SimpleNamespace(defaults=[]),
    )
    shell, cells = SimpleNamespace(user_ns={}), SimpleNamespace(past=list)
    display = SimpleNamespace(change=lambda **_: None, note=lambda *words: told.extend(words))

    def find(line):
        return PoolFinder(shell, cells, pools).find(parse(line), display)

    with pytest.raises(PoolError, match=r"is up with nodes=2.*`replace` on the line"):
        find("nodes=4")
    assert not adopted
    meant = find("nodes=4 replace")
    assert (meant.pool, meant.replaced, meant.spec.nodes) == (None, pool, 4)
    assert find("nodes=2 replace").pool is pool
    assert len(adopted) == 2
    assert any("earlier kernel" in each for each in told), told


@needs("keras", "torch")
def test_without_replace_it_is_said_what_to_write(resolve):
    with pytest.raises(PoolError, match=r"`replace` on the line"):
        resolve("framework=auto", IMPORTS)
    meant, pool = resolve("", IMPORTS, up="framework=keras:jax")
    assert meant.pool is pool
    assert (
        "pool default has keras:jax; framework=keras:torch replace makes it anew" in meant.notes[0]
    )
    with pytest.raises(OptionError, match=r"keras"):
        resolve("", "decorated()", up="framework=keras:jax")


def test_a_decorators_backend_is_that_of_the_pool_from_then_on(resolve):
    """So that the picture says what stands in for it."""
    body = "@sky.integrations.torch(backend='nccl')\ndef f(): ..."
    up = "nodes=2 accelerator=A100 simulate framework=torch"
    meant, pool = resolve("", f"import skyward_nb as sky\n{body}", up)
    assert meant.pool is pool
    assert (pool.spec.backend, meant.spec.backend) == ("auto", "nccl")
    with pytest.raises(OptionError, match="backend=nccl needs GPUs"):
        resolve("", f"import skyward_nb as sky\n{body}", "nodes=2 framework=torch")


def test_packages_are_added_to_the_pool_that_is_up(resolve):
    meant, pool = resolve("pip=six", "1", up="nodes=2")
    assert meant.pool is pool
    assert (meant.spec.image.pip, meant.spec.nodes) == (("six",), 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hosts=a", ["nodes will not have pytest, which this code uses: pip=pytest on the line "]),
        ("hosts=a pip=pytest", []),
        ("nodes=1", []),
    ],
)
def test_what_nodes_will_lack_is_told_before_they_are_there(tmp_path, monkeypatch, line, says):
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    display = SimpleNamespace(change=lambda **_: None, note=lambda *words: notes.extend(words))
    pools = SimpleNamespace(
        live=lambda _: None,
        lost=lambda _: None,
        left_over=lambda _: None,
        others=list,
        every_cell=SimpleNamespace(defaults=[]),
    )
    shell = SimpleNamespace(user_ns={"tool": pytest})
    finder = PoolFinder(shell, SimpleNamespace(past=list), pools)
    meant = finder.find(parse(f"{line} framework=none"), display, cell("import os\ntool.approx(1)"))
    assert meant.pool is None
    assert [each.removesuffix("installs it") for each in notes] == says
