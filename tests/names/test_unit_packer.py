"""What travels together, in which order, and which name holds what several share."""

import pytest

from skyward_nb.names.ledger import Ledger
from skyward_nb.pickling import payload
from skyward_nb.words.errors import PayloadError


class Notebook:
    """A namespace whose names are planned over and over, as cells do."""

    def __init__(self, namespace):
        self.names = namespace
        self.ledger = Ledger(1, lambda _: None)
        self.parcels = {}

    def plan(self, *reads):
        """Names and definitions that are sent, in order."""
        plan = self.ledger.plan(reads, self.names, (0,))
        units = [*plan.units, *(unit for unit, _ in plan.sending)]
        self.units = {f"def {u.shown}" if u.is_definition else u.shown: u for u in units}
        self.notes = plan.notes
        self.ledger.sent(plan, (0,))
        sent = [unit for unit, _ in plan.sending]
        self.parcels.update({unit.parcel: unit.shown for unit in sent})
        return [unit.shown for unit in sent]

    def points_at(self, name):
        """Whose objects, as they were sent, a value that was sent points at."""
        return {self.parcels[parcel] for parcel in self.units[name].points_at}


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
    assert nb.points_at("a") == set()
    assert nb.points_at("b") == {"a"}


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
    assert nb.points_at("a") == {"b"}
    assert nb.points_at("b") == set()


def test_a_sharer_that_was_sent_before_is_pointed_at(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}\nc = [2]")
    nb.plan("a")
    assert nb.plan("c") == ["c"]
    assert nb.plan("b") == ["b"]
    assert nb.points_at("b") == {"a"}
    del nb.names["a"]
    assert nb.plan("b") == [], "it has what it points at"


def test_a_sharer_that_cannot_travel_any_more_is_in_nobodys_way(nb):
    run(nb, "import threading\ns = [1]\na = {'s': s}\nb = {'s': s}")
    nb.plan("a")
    run(nb, "a['lock'] = threading.Lock()")
    assert nb.plan("b") == ["b"]
    assert nb.points_at("b") == set()
    assert nb.notes == (
        "b shares an object with a, which on the ranks is apart from the notebook's: there, b has a copy",
    )
    assert nb.plan("b") == []
    with pytest.raises(PayloadError, match="lock"):
        nb.plan("a")


def test_a_sharer_that_changed_since_is_not_pointed_at(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}")
    nb.plan("a")
    run(nb, "s.append(2)")
    assert nb.plan("b") == ["b"]
    assert nb.points_at("b") == set()
    assert nb.plan("a") == ["a"]
    assert nb.points_at("a") == {"b"}


def test_what_goes_points_at_what_stays(nb):
    run(nb, "registry = []\nmodel = {'w': [0]}")
    nb.plan("registry", "model")
    run(nb, "registry.append(model)")
    assert nb.plan("registry", "model") == ["registry"]
    assert nb.points_at("registry") == {"model"}


def test_a_part_that_came_with_another_stays_where_it_came(nb):
    run(nb, "s = [1]\na = {'s': s}\nb = {'s': s}\nc = [s]")
    nb.plan("a", "b")
    run(nb, "a['more'] = 1")
    assert nb.plan("a") == ["a"]
    assert nb.plan("c") == ["c"]
    assert nb.points_at("c") == {"a"}
    first = min(parcel for parcel, name in nb.parcels.items() if name == "a")
    assert nb.units["c"].points_at == {first}, "the parcel in which it came at first"


def test_two_names_of_one_object(nb):
    run(nb, "a = b = [1, 2]")
    nb.plan("a", "b")
    assert nb.points_at("b") == {"a"}
    assert nb.units["b"].bundle.size < 120


def test_constants_are_nobodys(nb):
    run(nb, "import datetime, enum\nclass E(enum.Enum):\n    X = 1\n"
            "t = datetime.date.today()\na = [t, E.X, 'text', (1, 2)]\nb = [t, E.X, a[2], a[3]]")  # fmt: skip
    nb.plan("a", "b")
    assert nb.points_at("b") == set()


def test_closures_share_their_cells(nb):
    run(nb, "def make():\n    n = []\n    return (lambda: n.append(1)), (lambda: len(n))\n"
            "add, count = make()")  # fmt: skip
    nb.plan("add", "count")
    assert nb.points_at("count") == {"add"}


def test_defaults_and_class_attributes_are_shared_too(nb):
    run(nb, "cache = {}\ndef f(x, cache=cache): return cache\nclass C:\n    registry = cache")
    nb.plan("cache", "f", "C")
    sharers = ("cache", "def f", "def C")
    assert sum(bool(nb.units[name].points_at) for name in sharers) == 2


def test_definitions_in_a_circle_are_one(nb):
    run(nb, "class C: pass\ndef f(c=C()): return c\nC.make = f\nC.registry = [f]\nx = C()")
    order = nb.plan("x")
    assert order[-1] == "x"
    assert sorted(map(len, (unit.labels for unit in nb.units.values())))[-1] == 2


def test_what_no_path_leads_to_is_shared_too(nb):
    run(
        nb,
        "class M: pass\ngrid = {(0, 0): M(), (0, 1): M()}\no = grid[0, 0]\nhidden = {frozenset([o])}",
    )
    nb.plan("o", "grid", "hidden")
    assert nb.points_at("o") == {"grid"} or nb.points_at("grid") == {"o"}
    assert nb.points_at("hidden")


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(payload, "_LARGE", 1000)


def test_a_great_many_objects_share_with_few(nb, large):
    run(nb, "rows = [{'n': [n]} for n in range(500)]\nfew = [rows[7], rows[9]]\nother = [[1]]")
    nb.plan("rows", "few", "other")
    assert nb.units["rows"].bundle.is_large
    assert nb.points_at("few") == {"rows"}
    assert nb.points_at("other") == set()


def test_a_great_many_point_at_few_that_were_first(nb, large):
    run(nb, "few = [[1], [2]]\nrows = [{'n': [n]} for n in range(500)]\nrows[3]['few'] = few[1]")
    nb.plan("few", "rows")
    assert nb.points_at("rows") == {"few"}


def test_two_of_a_great_many(nb, large):
    run(
        nb,
        "rows = [{'n': [n]} for n in range(500)]\nhalf = rows[::2]\nmore = [[n] for n in range(500)]",
    )
    nb.plan("rows", "half", "more")
    assert nb.points_at("half") == {"rows"}
    assert nb.points_at("more") == set()


def test_a_model_and_its_optimizer(nb):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    nb.names["model"] = model
    nb.names["opt"] = torch.optim.Adam(model.parameters())
    nb.names["view"] = model.weight.data[:1]
    nb.plan("opt", "model", "view")
    assert nb.points_at("opt") == {"model"}
    assert nb.points_at("view") == {"model"}


def test_big_values_are_told_before_they_are_packed(home_namespace):
    home_namespace.update(a=[0] * 200_000, b=[2])
    told = []
    Ledger(1, lambda _: None).plan(["a", "b"], home_namespace, (0,), tell=told.append)
    assert told == ["a"]


def test_a_small_view_goes_alone_until_its_whole_goes_too(nb):
    torch = pytest.importorskip("torch")
    nb.names["whole"] = torch.arange(1_000_000.0)
    nb.names["part"] = nb.names["whole"][:10]
    nb.plan("part")
    assert nb.units["part"].bundle.size < 2000
    assert nb.plan("part") == []
    other = Notebook(nb.names)
    other.plan("whole", "part")
    assert other.points_at("part") == {"whole"}


def test_whatever_changes_in_a_function_is_sent(nb):
    run(nb, "k = 1\ndef f(a=1, *, b=2): return k\ndef g(a=3): return a")
    f = nb.names["f"]
    assert set(nb.plan("f")) == {"f", "k"}
    for _ in range(2):
        assert nb.plan("f") == []
    changes = [
        lambda: setattr(f, "__defaults__", (True,)),
        lambda: setattr(f, "__defaults__", (1.0,)),
        lambda: f.__kwdefaults__.update(b=3),
        lambda: f.__annotations__.update(a=int),
        lambda: setattr(f, "__code__", nb.names["g"].__code__),
        lambda: setattr(f, "note", [1]),
        lambda: f.note.append(2),
        lambda: delattr(f, "note"),
        lambda: setattr(f, "__defaults__", ([1],)),
        lambda: f.__defaults__[0].append(2),
    ]
    for change in changes:
        change()
        assert nb.plan("f") == ["f"]
        assert nb.plan("f") == []


def test_what_a_function_closes_over_is_looked_at_each_time(nb):
    run(nb, "def make():\n    held = [1]\n    def f(): return held\n    return f, held\n"
            "f, held = make(); f.__qualname__ = 'f'")  # fmt: skip
    assert "f" in nb.plan("f")
    assert nb.plan("f") == []
    nb.names["held"].append(2)
    assert "f" in nb.plan("f")
