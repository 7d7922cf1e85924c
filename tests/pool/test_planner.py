"""What travels together, in which order, and which name holds what several share."""

import itertools
import types

import pytest

from skyward_nb.pool.planner import Known, Planner, remember
from skyward_nb.wire import payload
from skyward_nb.wire.definitions import is_label


class Notebook:
    """A namespace whose names are planned over and over, as cells do."""

    def __init__(self, namespace):
        self.names = namespace
        self.known = Known()

    def plan(self, *reads):
        planner = Planner(self.names, self.known, lambda *_: False, lambda _: None)
        units = planner.plan(reads)
        remember(self.known, units)
        self.units = {f"def {u.shown}" if is_label(u.labels[0]) else u.shown: u for u in units}
        return [unit.shown for unit in units]

    def holders(self, name):
        return {str(each) for each in self.units[name].holders}


@pytest.fixture
def nb(home_namespace):
    return Notebook(home_namespace)


def run(nb, code):
    exec(code, nb.names)


def test_only_what_is_needed_and_definitions_first(nb):
    run(nb, "k = 1\nclass A: pass\nclass B(A):\n    def m(self): return f()\ndef f(): return k\n"
            "b = B(); unused = 5")  # fmt: skip
    order = nb.plan("b")
    assert set(order) == {"A", "B", "b", "f", "k"}
    assert order.index("A") < order.index("B") < order.index("b")


def test_the_first_of_two_names_holds_what_both_share(nb):
    run(nb, "shared = [1]\na = {'s': shared}\nb = {'s': shared}")
    assert nb.plan("b", "a")[-2:] == ["a", "b"]
    assert nb.holders("a") == set()
    assert nb.holders("b") == {"a"}


def test_sharing_does_not_change_what_a_name_contains(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}")
    other = Notebook(nb.names)
    other.plan("b")
    alone = other.units["b"].content
    nb.plan("a", "b")
    assert nb.units["b"].content == alone
    assert nb.units["b"].bundle.digest != alone


def test_who_was_sent_first_stays_the_holder(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}")
    nb.plan("b")
    nb.plan("a", "b")
    assert nb.holders("a") == {"b"}
    assert nb.holders("b") == set()


def test_a_sharer_that_was_sent_before_comes_along(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}\nc = [2]")
    nb.plan("a")
    assert nb.plan("c") == ["c"]
    assert nb.plan("b") == ["a", "b"]
    assert nb.holders("b") == {"a"}
    del nb.names["a"]
    assert nb.plan("b") == ["b"]
    assert nb.holders("b") == set()


def test_two_names_of_one_object(nb):
    run(nb, "a = b = [1, 2]")
    nb.plan("a", "b")
    assert nb.holders("b") == {"a"}
    assert nb.units["b"].bundle.size < 120


def test_constants_are_nobodys(nb):
    run(nb, "import datetime, enum\nclass E(enum.Enum):\n    X = 1\n"
            "t = datetime.date.today()\na = [t, E.X, 'text', (1, 2)]\nb = [t, E.X, a[2], a[3]]")  # fmt: skip
    nb.plan("a", "b")
    assert nb.holders("b") == set()


def test_closures_share_their_cells(nb):
    run(nb, "def make():\n    n = []\n    return (lambda: n.append(1)), (lambda: len(n))\n"
            "add, count = make()")  # fmt: skip
    nb.plan("add", "count")
    assert nb.holders("count") == {"add"}


def test_defaults_and_class_attributes_are_shared_too(nb):
    run(nb, "cache = {}\ndef f(x, cache=cache): return cache\nclass C:\n    registry = cache")
    nb.plan("cache", "f", "C")
    sharers = ("cache", "def f", "def C")
    assert sum(bool(nb.units[name].holders) for name in sharers) == 2


def test_definitions_in_a_circle_are_one(nb):
    run(nb, "class C: pass\ndef f(c=C()): return c\nC.make = f\nC.registry = [f]\nx = C()")
    order = nb.plan("x")
    assert order[-1] == "x"
    assert sorted(map(len, (unit.labels for unit in nb.units.values())))[-1] == 2


def test_what_no_path_leads_to_is_packed_as_one(nb):
    class Hidden:
        """Holds something where no step leads to."""

        def __init__(self, held):
            self._get = itertools.repeat(held)

        def __reduce__(self):
            return types.SimpleNamespace, (), {"held": next(self._get)}

    Hidden.__reduce_ex__ = lambda self, _: self.__reduce__()
    shared = [1]
    nb.names.update(a=Hidden(shared), b={"s": shared})
    nb.plan("a", "b")
    (unit,) = {id(unit): unit for unit in nb.units.values()}.values()
    assert unit.labels == ("a", "b")


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(payload, "_LARGE", 1000)


def test_a_great_many_objects_share_with_few(nb, large):
    run(nb, "rows = [{'n': [n]} for n in range(500)]\nfew = [rows[7], rows[9]]\nother = [[1]]")
    nb.plan("rows", "few", "other")
    assert nb.units["rows"].bundle.is_large
    assert nb.holders("few") == {"rows"}
    assert nb.holders("other") == set()


def test_a_great_many_point_at_few_that_were_first(nb, large):
    run(nb, "few = [[1], [2]]\nrows = [{'n': [n]} for n in range(500)]\nrows[3]['few'] = few[1]")
    nb.plan("few", "rows")
    assert nb.holders("rows") == {"few"}


def test_two_of_a_great_many(nb, large):
    run(
        nb,
        "rows = [{'n': [n]} for n in range(500)]\nhalf = rows[::2]\nmore = [[n] for n in range(500)]",
    )
    nb.plan("rows", "half", "more")
    assert nb.holders("half") == {"rows"}
    assert nb.holders("more") == set()


def test_a_model_and_its_optimizer(nb):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    nb.names["model"] = model
    nb.names["opt"] = torch.optim.Adam(model.parameters())
    nb.names["view"] = model.weight.data[:1]
    nb.plan("opt", "model", "view")
    assert nb.holders("opt") == {"model"}
    assert nb.holders("view") == {"model"}


def test_what_is_skipped_is_not_packed(home_namespace):
    home_namespace.update(a=[1], b=[2])
    planner = Planner(home_namespace, Known(), lambda name, _: name == "a", lambda _: None)
    assert [unit.shown for unit in planner.plan(["a", "b", "c"])] == ["b"]
    assert planner.skipped == {"a"}
    assert planner.absent == {"c"}


def test_big_values_are_told_before_they_are_packed(home_namespace):
    home_namespace.update(a=[0] * 200_000, b=[2])
    told = []
    Planner(home_namespace, Known(), lambda *_: False, told.append).plan(["a", "b"])
    assert told == ["a"]


def test_a_small_view_goes_alone_until_its_whole_goes_too(nb):
    torch = pytest.importorskip("torch")
    nb.names["whole"] = torch.arange(1_000_000.0)
    nb.names["part"] = nb.names["whole"][:10]
    nb.plan("part")
    assert nb.units["part"].bundle.size < 2000
    content = nb.units["part"].content
    nb.plan("part")
    assert nb.units["part"].content == content
    nb.plan("whole", "part")
    assert nb.holders("whole") | nb.holders("part") == {"part"} or nb.holders("part") == {"whole"}
