"""`@sky.function`: what can be one, what its calls are, and what is said of those that are none."""

from __future__ import annotations

import asyncio
import sys
import threading
import types

import pytest
from later import Later, needs
from leaks import leaves_nothing
from scripts import run_text

import skyward_nb as sky
from skyward_nb.functions import asynchronous

np = Later("numpy")


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True) as pool:
        yield pool


@sky.function
def add(x, y=1, *rest, **more):
    """Add numbers."""
    return x + y + sum(rest) + sum(more.values())


class Model:
    scale = 3

    def __init__(self, bias=0):
        self.bias = bias

    @sky.function
    def predict(self, x):
        return self.scale * x + self.bias

    @sky.function
    async def later(self, x):
        await asyncio.sleep(0)
        return self.bias + x

    @staticmethod
    @sky.function
    def double(x):
        return 2 * x

    @classmethod
    @sky.function
    def scaled(cls, x):
        return cls.scale * x


class Steeper(Model):
    scale = 10


@sky.function
async def after_a_while(x):
    await asyncio.sleep(0.01)
    return x


# ── without a pool ──────────────────────────────────────────────────────────────────────


def test_it_is_the_function_and_calling_it_runs_nothing():
    ran = []
    note = sky.function(ran.append)
    call = note(1)
    assert not ran
    assert call.local() is None
    assert note.local(2) is None
    assert ran == [1, 2]
    assert (add.__name__, add.__doc__, add.name) == ("add", "Add numbers.", "add")
    assert repr(add) == "<sky.function add>"
    assert repr(add(1)) == "<add(...), not run: >> pool, @ pool, > pool or .local()>"
    assert add.local(1, 2, 3, z=4) == 10


def test_groups_run_here_too():
    assert (add(1) & add(2) & add(3)).local() == (2, 3, 4)
    assert sky.gather(add(1), add(2)).local() == (2, 3)
    assert list(sky.gather(add(1), add(2), stream=True).local()) == [2, 3]


def test_arguments_are_checked_when_it_is_called():
    with pytest.raises(TypeError, match=r"add\(\) missing a required argument: 'x'"):
        add()
    with pytest.raises(TypeError, match=r"double\(\) too many positional arguments"):
        Model.double(1, 2)
    assert repr(sky.function(max)(1, 2)).startswith("<max(...)")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: sky.function(Model), "takes a function, and Model is a class"),
        (lambda: sky.function(3), "takes a function, not int"),
        (lambda: sky.function(add), "add is a sky.function already"),
        (lambda: sky.function(staticmethod(max)), "goes below @staticmethod"),
        (lambda: sky.function(classmethod(max)), "goes below @classmethod"),
        (lambda: sky.function(property(max)), "goes below @property"),
    ],
    ids=["a class", "a number", "twice", "staticmethod", "classmethod", "property"],
)
def test_what_is_no_function_is_told(made, words):
    with pytest.raises(TypeError, match=words):
        made()


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (lambda pool: add >> pool, r"add is not called: .* add\(\.\.\.\) >> pool"),
        (lambda pool: add @ pool, "add is not called"),
        (lambda pool: add > pool, "add is not called"),
        (lambda pool: add & add(1), "add is not called"),
        (lambda pool: add(1) & add, "add is not called"),
        (lambda pool: sky.gather(add), "add is not called"),
        (lambda pool: sky.gather([add(1), add(2)]), r"give them one by one, sky.gather\(\*calls\)"),
        (lambda pool: sky.gather(add(1), 2), "int is not one: call the function"),
        (lambda pool: add(1) & add(2) >> pool, r"come before &, so write \(a\(\) & b\(\)\) >> pool"),
        (lambda pool: add(1) & (add(2) > pool), r"that is a future already: .result\(\)"),
        (lambda pool: (add(1) & add(2)) @ pool, "@ runs one function on every rank"),
        (lambda pool: sky.gather(add(1)) @ pool, "@ runs one function on every rank"),
        (lambda pool: add.local(1) >> pool, ">> sends a call .* its left is int; .* @sky.function"),
        (lambda pool: None @ pool.head, "@ sends a call .* its left is NoneType; .* that ran here"),
        (lambda pool: pool.node(1) < [1], "> sends a call .* its left is list; if a function"),
        (lambda pool: [add(1), add(2)] @ pool, r"join calls: sky.gather\(\*calls\) >> pool"),
        (lambda pool: 1 @ asynchronous.AsyncCompute(pool), "@ sends a call .* its left is int"),
        (lambda pool: sky.gather(add(1), stream=True) @ pool, "unsupported operand"),
        (lambda pool: add(1) >> add(2), ">> needs a pool on its right"),
        (lambda pool: add(1) @ 3, "@ needs a pool on its right.* not int"),
        (lambda pool: add(1) > 3, "> needs a pool on its right"),
        (lambda pool: bool(add(1)), "has not run, so it is neither true nor false"),
        (lambda pool: list(add(1)), r"iterate over `add\(...\) >> pool`"),
        (lambda pool: add(1) > add(2) > pool, "> needs a pool on its right"),
    ],
)  # fmt: skip
def test_operators_used_otherwise_say_how_they_are_meant(pool, used, words):
    with pytest.raises(TypeError, match=words):
        used(pool)


@needs("numpy")
def test_arrays_leave_the_operators_to_pools(pool):
    with pytest.raises(TypeError, match=r"@ sends a call .* its left is ndarray"):
        np.ones(2) @ pool
    with pytest.raises(TypeError, match=r">> sends a call .* its left is float32"):
        np.float32(2) >> pool


@pytest.mark.parametrize("seconds", [0, -1, "10", float("nan")])
def test_a_timeout_is_a_number_of_seconds(seconds):
    with pytest.raises(ValueError, match="give a number of seconds above 0"):
        add(1).with_timeout(seconds)


# ── on ranks ────────────────────────────────────────────────────────────────────────────


def test_all_kinds_of_functions(pool):
    offset = 5
    assert add(1, 2, 3, z=4) >> pool == 10
    assert sky.function(lambda x: x + offset)(1) @ pool == [6, 6]
    assert sky.function(max)(1, 2) >> pool == 2
    assert sky.function(Model().__init__)(2) >> pool is None
    assert after_a_while(3) @ pool == [3, 3]


def test_functions_of_classes(pool):
    assert Model(1).predict(2) @ pool == [7, 7]
    assert Steeper(1).predict(2) >> pool == 21
    assert Model.predict(Model(5), 0) >> pool == 5
    assert Model(4).later(1) >> pool == 5
    assert Model.double(4) >> pool == 8
    assert Model(1).double(4) >> pool == 8
    assert (Model.scaled(2) & Steeper.scaled(2)) >> pool == (6, 20)


def test_arguments_and_values_are_of_the_same_class_here_and_there(pool):
    @sky.function
    def renewed(model):
        assert isinstance(model, Model)
        return type(model)(model.bias + 1)

    found = renewed(Steeper(1)) >> pool
    assert type(found) is Steeper
    assert found.bias == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda bad: add(bad), "x: _thread.lock"),
        (lambda bad: add(1, [0, bad]), r"y\[1\]: _thread.lock"),
        (lambda bad: add(1, 2, 3, bad), r"rest\[1\]: _thread.lock"),
        (lambda bad: add(1, more={"deep": {"er": bad}}), r"more\['more'\]\['deep'\]\['er'\]: _thread"),
        (lambda bad: Model(bad).predict(1), r"predict.*bias: _thread.lock"),
        (lambda bad: sky.function(lambda: bad)(), "bad.*: _thread.lock"),
        (lambda bad: sky.function(max)(1, bad), "_thread.lock"),
    ],
    ids=["named", "inside", "rest", "keyword", "object", "closure", "native"],
)  # fmt: skip
def test_an_argument_that_cannot_travel_is_named_before_anything_is_sent(pool, call, words):
    with pytest.raises(sky.PayloadError, match=words):
        call(threading.Lock()) >> pool
    with pytest.raises(sky.PayloadError, match=words):
        pool.submit(call(threading.Lock()))


def test_an_item_of_a_map_that_cannot_travel_is_named(pool):
    with pytest.raises(sky.PayloadError, match=r"^x: _thread\.lock") as error:
        pool.map(add, [1, 2, threading.Lock()])
    assert error.value.__notes__ == ["item 2 of the map"]


def test_a_value_that_cannot_travel_stays_and_is_told(pool):
    with pytest.raises(sky.PayloadError, match="return what can travel") as error:
        sky.function(lambda: threading.Lock())() >> pool
    assert "on rank 0" in str(error.value) or "on rank 1" in str(error.value)
    assert add(1) @ pool == [2, 2]


def test_a_module_that_ranks_lack_is_named(pool, monkeypatch):
    ghost = types.ModuleType("ghost_of_a_module")
    exec("def haunt(): return 1", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost_of_a_module", ghost)
    with pytest.raises(sky.PayloadError, match="ranks lack the module ghost_of_a_module") as error:
        sky.function(ghost.haunt)() >> pool
    assert "The call did not run." in str(error.value)


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), StopIteration(4), KeyboardInterrupt(), ExceptionGroup("both", [KeyError("a")])],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_of_all_kinds_arrive(pool, error):
    def throw():
        raise error

    with pytest.raises(type(error)) as found:
        sky.function(throw)() >> pool
    assert str(found.value) == str(error)
    assert any("raised on rank" in note for note in found.value.__notes__)


def test_functions_of_a_script_find_what_they_read_there(no_leaks, tmp_path):
    (tmp_path / "beside.py").write_text("FACTOR = 7\ndef scaled(x): return FACTOR * x\n")
    ran = run_text(
        """
import beside
import skyward_nb as sky

class Point:
    def __init__(self, x): self.x = x

BASE = [100]

def helper(point):
    return Point(BASE[0] + beside.scaled(point.x))

@sky.function
def far(point):
    return helper(point)

with sky.Compute(nodes=2, quiet=True) as pool:
    print([isinstance(p, Point) and p.x for p in far(Point(1)) @ pool])
    BASE[0] = 200
    print((far(Point(1)) >> pool).x)
    def helper(point): return Point(-1)
    print((far(Point(1)) >> pool).x)
""",
        tmp_path,
    )
    assert (ran.stdout, ran.stderr) == ("[107, 107]\n207\n-1\n", "")
