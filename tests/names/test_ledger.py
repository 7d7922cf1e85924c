"""The rule of names: sent when changed since last sent, and the last writer wins."""

import gc
import threading
from argparse import Namespace

import pytest

from skyward_nb.names.ledger import Ledger
from skyward_nb.protocol.commands import SourceFile
from skyward_nb.protocol.events import RankDone
from skyward_nb.protocol.message_parts import Rejected
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.errors import PayloadError

ALL = (0, 1)


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path)


@pytest.fixture
def ledger():
    return Ledger(2, lambda file: SourceFile(file, 7, "text"))


def send(ledger, names, namespace, ranks=ALL):
    """Plan and send; returns what goes to whom, and the manifest's statuses."""
    plan = ledger.plan(names, namespace, ranks)
    ledger.sent(plan, ranks)
    going = {unit.shown: some for unit, some in plan.sending}
    return going, {row.name: row.status for row in plan.rows}


def assign(ledger, names, namespace, ranks=ALL, *, dropped=()):
    """A cell ended that bound `names` on `ranks`, and left `dropped` unbound."""
    done = {
        r: RankDone(run=1, rank=r, assigned=tuple(names), dropped=tuple(dropped)) for r in ranks
    }
    ledger.settle(done, namespace)


def test_sent_once_then_unchanged_then_sent_when_changed(ledger):
    ns = {"x": [1, 2]}
    assert send(ledger, ["x"], ns) == ({"x": None}, {"x": "sent"})
    assert send(ledger, ["x"], ns) == ({}, {"x": "unchanged"})
    ns["x"].append(3)
    assert send(ledger, ["x"], ns) == ({"x": None}, {"x": "sent"})


def test_names_the_notebook_lacks_are_the_ranks_business(ledger):
    assert send(ledger, ["y"], {}) == ({}, {})
    assign(ledger, ["y"], {}, (0,))
    assert send(ledger, ["y"], {})[1] == {"y": "kept on ranks"}


def test_a_name_assigned_on_ranks_is_not_overwritten_until_the_notebooks_changes(ledger):
    ns = {"x": 1}
    send(ledger, ["x"], ns)
    assign(ledger, ["x"], ns)
    assert send(ledger, ["x"], ns) == ({}, {"x": "kept on ranks"})
    ns["x"] = 2
    assert send(ledger, ["x"], ns) == ({"x": None}, {"x": "sent"})


def test_what_is_to_be_sent_in_any_case_is_sent_to_those_ranks(ledger):
    ns = {"x": 1}
    send(ledger, ["x"], ns)
    assign(ledger, ["x"], ns)
    ledger.renew(["x", "nowhere"], (0,))
    assert send(ledger, ["x"], ns, (1,)) == ({}, {"x": "kept on ranks"})
    assert send(ledger, ["x"], ns, (0,)) == ({"x": (0,)}, {"x": "sent"})
    assert send(ledger, ["x"], ns, (0,))[1] == {"x": "unchanged"}


def test_even_if_the_notebooks_was_never_sent(ledger):
    ns = {"x": 1}
    assign(ledger, ["x"], ns)
    assert send(ledger, ["x"], ns) == ({}, {"x": "kept on ranks"})


def test_what_one_rank_assigned_is_no_other_ranks(ledger):
    ns = {"x": 1}
    assign(ledger, ["x"], ns, (0,))
    assert send(ledger, ["x"], ns)[0] == {"x": (1,)}


def test_a_name_sent_to_some_is_sent_to_the_others_later(ledger):
    ns = {"x": 1}
    assert send(ledger, ["x"], ns, (0,))[0] == {"x": (0,)}
    assert send(ledger, ["x"], ns)[0] == {"x": (1,)}


def test_a_name_deleted_on_ranks_is_sent_again(ledger):
    ns = {"x": 1}
    send(ledger, ["x"], ns)
    assign(ledger, [], ns, (1,), dropped=["x"])
    assert send(ledger, ["x"], ns)[0] == {"x": (1,)}


def test_what_ends_with_the_ranks_is_what_they_made_or_changed_in_place(ledger):
    ns = {"x": [1], "sent": 2}
    send(ledger, ["x", "sent"], ns)
    assign(ledger, ["made"], ns, (0,))
    ledger.settle({1: RankDone(run=2, rank=1, altered=("x",))}, ns)
    assert ledger.only_on_ranks() == ["made", "x"]
    assert ledger.names_made_on_ranks() == ["made"]
    ns["x"] = [2]
    send(ledger, ["x"], ns)
    assert ledger.only_on_ranks() == ["made"], "the notebook's is theirs again"
    ledger.forget()
    assert ledger.only_on_ranks() == []


def test_what_names_read_is_sent_too(ledger, home_namespace):
    exec("k = 2\ndef g(): return k\ndef f(): return g()\nclass C:\n    def m(self): return f()\n"
         "c = C(); unused = 5", home_namespace)  # fmt: skip
    going, _ = send(ledger, ["c"], home_namespace)
    assert set(going) == {"C", "c", "f", "g", "k"}
    home_namespace["k"] = 3
    assert set(send(ledger, ["c"], home_namespace)[0]) == {"k"}


def test_sources_of_shipped_code_travel_once(ledger, home_namespace):
    exec(compile("def f(): pass", "cell-file", "exec"), home_namespace)
    plan = ledger.plan(["f"], home_namespace, ALL)
    assert plan.sources == (SourceFile("cell-file", 7, "text"),)
    ledger.sent(plan, ALL)
    assert ledger.plan(["f"], home_namespace, ALL).sources == ()


def test_a_bad_name_is_told_and_nothing_is_marked_as_sent(ledger):
    ns = {"x": 1, "bad": [threading.Lock()]}
    with pytest.raises(PayloadError, match=r"bad\[0\]"):
        ledger.plan(["x", "bad"], ns, ALL)
    assert send(ledger, ["x"], ns)[0] == {"x": None}


def test_an_unsendable_notebook_value_does_not_hinder_the_ranks_own(ledger):
    ns = {"lock": threading.Lock()}
    assign(ledger, ["lock"], ns)
    assert send(ledger, ["lock"], ns) == ({}, {"lock": "kept on ranks"})


def test_a_value_bound_from_the_ranks_is_not_sent_back(ledger):
    ns = {"history": [1, 2, 3]}
    ledger.bound_here("history", ns["history"], ALL)
    assert send(ledger, ["history"], ns)[0] == {}
    ns["history"].append(4)
    assert send(ledger, ["history"], ns)[0] == {"history": None}
    ns["history"] = "mine now"
    assert send(ledger, ["history"], ns)[0] == {"history": None}


def test_a_new_generation_has_nothing(ledger):
    ns = {"x": 1}
    send(ledger, ["x"], ns)
    assign(ledger, ["y"], ns, (0,))
    assert ledger.names_made_on_ranks() == ["y"]
    ledger.forget()
    assert send(ledger, ["x"], ns)[0] == {"x": None}
    assert ledger.names_made_on_ranks() == []


def test_a_builtins_name_deleted_in_the_notebook_goes_from_the_ranks(ledger):
    ns = {"max": 5, "x": 1}
    send(ledger, ["max", "x"], ns)
    ns.clear()
    plan = ledger.plan(["max", "x"], ns, ALL)
    assert plan.removed == ("max",)
    assert [(row.name, row.status) for row in plan.rows] == [("max", "removed")]
    ledger.sent(plan, (0,))
    assert ledger.plan(["max"], ns, (0,)).removed == ()
    plan = ledger.plan(["max"], ns, ALL)
    assert plan.removed == ("max",), "another rank has it still"
    ledger.sent(plan, ALL)
    assert ledger.plan(["max"], ns, ALL).removed == ()


def test_a_builtins_name_that_ranks_bound_is_theirs(ledger):
    assign(ledger, ["max"], {})
    assert ledger.plan(["max"], {}, ALL).removed == ()


def test_what_ranks_keep_is_never_sent_for_being_shared(ledger):
    shared = [1]
    ns = {"a": {"s": shared}, "b": {"s": shared}}
    assert set(send(ledger, ["a", "b"], ns)[0]) == {"a", "b"}
    ns["b"]["own"] = 2
    assert set(send(ledger, ["a", "b"], ns)[0]) == {"b"}, "a's is the ranks' own"
    ns["a"]["own"] = 3
    assert set(send(ledger, ["a"], ns)[0]) == {"a"}
    assert set(send(ledger, ["b"], ns)[0]) == set()
    shared.append(2)
    assert set(send(ledger, ["b", "a"], ns)[0]) == {"a", "b"}


def test_sharing_found_later_is_made_good(ledger):
    shared = [1]
    ns = {"a": {"s": shared}}
    send(ledger, ["a"], ns)
    ns["b"] = {"s": shared}
    assert send(ledger, ["a", "b"], ns) == ({"b": None}, {"a": "unchanged", "b": "sent"})


def test_a_holder_deleted_in_the_notebook_changes_nothing_on_ranks(ledger):
    shared = [1]
    ns = {"a": {"s": shared}, "b": {"s": shared}}
    send(ledger, ["a", "b"], ns)
    del ns["a"]
    assert send(ledger, ["b"], ns)[0] == {}


def test_running_a_class_cell_again_leaves_its_instances_alone(ledger, home_namespace):
    code = "class C:\n    def m(self): return 1\n"
    exec(code + "c = C()", home_namespace)
    assert set(send(ledger, ["c"], home_namespace)[0]) == {"C", "c"}
    exec(code, home_namespace)
    plan = ledger.plan(["c"], home_namespace, ALL)
    assert plan.sending == ()
    (note,) = plan.notes
    assert "c is of the C that was defined before" in note
    assert ledger.plan(["c"], home_namespace, ALL).notes == (note,), "a plan is no run"
    ledger.sent(plan, ALL)
    assert ledger.plan(["c"], home_namespace, ALL).notes == (), "said once"
    going, statuses = send(ledger, ["c", "C"], home_namespace)
    assert set(going) == {"C"}
    assert statuses == {"C": "sent", "c": "unchanged"}


def test_a_class_changed_in_place_goes_without_its_instances(ledger, home_namespace):
    exec("class C: pass\nc = C()", home_namespace)
    send(ledger, ["c"], home_namespace)
    home_namespace["C"].new = 1
    assert set(send(ledger, ["c"], home_namespace)[0]) == {"C"}


def test_what_a_rank_rejects_goes_again_with_all_that_went(ledger):
    ns = {"a": [1], "b": [2]}
    plan = ledger.plan(["a", "b"], ns, ALL)
    ledger.sent(plan, ALL)
    done = {0: RankDone(run=1, rank=0, rejected=Rejected(("a",), "no")), 1: RankDone(run=1, rank=1)}
    ledger.settle(done, ns, plan)
    assert send(ledger, ["a", "b"], ns)[0] == {"a": (0,), "b": (0,)}


def test_a_name_that_a_cell_reads_and_assigns_is_marked_as_it_was_sent(ledger):
    ns = {"x": [1]}
    plan = ledger.plan(["x"], ns, ALL)
    ledger.sent(plan, ALL)
    done = {rank: RankDone(run=1, rank=rank, assigned=("x",)) for rank in ALL}
    ledger.settle(done, ns, plan)
    assert send(ledger, ["x"], ns) == ({}, {"x": "kept on ranks"})


def test_the_manifest_has_types_sizes_and_times(ledger):
    plan = ledger.plan(["x"], {"x": [0] * 1000}, ALL)
    (row,) = plan.rows
    assert (row.name, row.type_name, row.status) == ("x", "list", "sent")
    assert row.size > 1000 and row.seconds > 0
    assert plan.sent_bytes == row.size
    assert plan.largest().startswith("x ")


def test_what_finds_no_room_is_named(ledger, store, monkeypatch):
    def full(*_):
        raise OSError(28, "it has 1 MB, and there are 0 B free")

    monkeypatch.setattr(store, "put", full)
    plan = ledger.plan(["x"], {"x": bytes(1_000_000)}, ALL)
    with pytest.raises(
        PayloadError, match=r"x: bytes does not fit on the ranks. machine: it has 1 MB"
    ):
        plan.stow(lambda _: store)


def test_submodules_are_imported_once(ledger):
    import xml.dom.minidom

    ns = {"xml": xml}
    plan = ledger.plan(["xml"], ns, ALL, tokens=frozenset({"dom"}))
    assert plan.imports == ("xml.dom",)
    ledger.sent(plan, ALL)
    assert ledger.plan(["xml"], ns, ALL, tokens=frozenset({"dom"})).imports == ()


def parcels(plan):
    return {unit.shown: unit.parcel for unit, _ in plan.sending}


def test_parcels_live_as_long_as_something_belongs_to_them(ledger):
    shared = [1]
    ns = {"a": {"s": shared}, "b": {"s": shared}, "n": 5}
    plan = ledger.plan(["a", "b", "n"], ns, ALL)
    ledger.sent(plan, ALL)
    numbers = parcels(plan)
    assert numbers["n"] == 0, "nothing in it can be shared"
    assert ledger.to_let_go(ALL)[0] == ()
    assert ledger.parcels_of(["a", "b"], plan) == {"b": (numbers["b"],)}
    ns["a"] = "another"
    send(ledger, ["a"], ns)
    assert ledger.to_let_go(ALL)[0] == (), "b has its part of the old one"
    ns["b"] = "another, too"
    send(ledger, ["b"], ns)
    assert set(ledger.to_let_go(ALL)[0]) == {numbers["a"], numbers["b"]}
    assert ledger.to_let_go(ALL)[0] == (), "told once"


def test_ranks_that_have_different_things_are_sent_what_fits_each(ledger):
    shared = [1]
    ns = {"a": {"s": shared}, "b": {"s": shared}}
    first = ledger.plan(["a"], ns, (0,))
    ledger.sent(first, (0,))
    second = ledger.plan(["a", "b"], ns, ALL)
    going = {(unit.shown, some): unit for unit, some in second.sending}
    assert set(going) == {("b", (0,)), ("a", (1,)), ("b", (1,))}
    assert going["b", (0,)].points_at == {parcels(first)["a"]}
    assert going["b", (1,)].points_at == {going["a", (1,)].parcel}
    ledger.sent(second, ALL)
    assert send(ledger, ["a", "b"], ns)[0] == {}


def test_what_shares_with_the_ranks_own_is_told(ledger):
    shared = [1]
    ns = {"a": {"s": shared}, "b": {"s": shared}}
    assign(ledger, ["a"], ns)
    plan = ledger.plan(["b"], ns, ALL)
    assert plan.notes == ()
    plan = ledger.plan(["a", "b"], ns, ALL)
    assert plan.notes == (
        "b shares an object with a, which on the ranks is apart from the notebook's: there, b has a copy",
    )
    ledger.sent(plan, ALL)
    assert ledger.plan(["a", "b"], ns, ALL).notes == ()


def model(w):
    """No object of a class of this file: the modules that it imports would be read each time."""
    return Namespace(w=w)


def test_a_value_under_another_name_is_the_one_that_ranks_have(ledger):
    ns = {"student": model(1)}
    first = ledger.plan(["student"], ns, ALL)
    ledger.sent(first, ALL)
    ns["teacher"], ns["student"] = ns["student"], model(2)
    plan = ledger.plan(["student", "teacher"], ns, ALL)
    units = {unit.shown: unit for unit, _ in plan.sending}
    assert units["teacher"].points_at == {parcels(first)["student"]}
    assert units["student"].points_at == set()


def test_two_objects_alike_are_two(ledger):
    ns = {"net": model(1)}
    ledger.sent(ledger.plan(["net"], ns, ALL), ALL)
    ns["teacher"], ns["net"] = ns["net"], model(1)
    plan = ledger.plan(["net", "teacher"], ns, ALL)
    assert [(unit.shown, unit.points_at) for unit, _ in plan.sending] == [("teacher", set())]


def test_a_new_object_is_not_taken_for_an_old_one_by_its_id(ledger):
    ns = {"old": model(1)}
    ledger.sent(ledger.plan(["old"], ns, ALL), ALL)
    before = id(ns.pop("old"))
    keep = []
    while id(new := model(1)) != before and len(keep) < 10_000:
        keep.append(new)
    ns["new"] = new
    plan = ledger.plan(["new"], ns, ALL)
    assert [unit.points_at for unit, _ in plan.sending] == [set()]


def test_a_rejected_value_leaves_what_it_shares_as_it_is(ledger):
    shared = model(1)
    ns = {"model": shared}
    ledger.sent(ledger.plan(["model"], ns, ALL), ALL)
    ns["bad"] = [shared]
    for gone in (False, True):
        plan = ledger.plan(["model", "bad"], ns, ALL)
        ledger.sent(plan, ALL)
        rejected = Rejected(("bad",), "no", gone=gone)
        ledger.settle({r: RankDone(run=1, rank=r, rejected=rejected) for r in ALL}, ns, plan)
        assert set(send(ledger, ["model"], ns)[0]) == set()


def test_ranks_own_values_of_a_name_the_notebook_gets_stay(ledger):
    ns = {}
    assign(ledger, ["m"], ns)
    ns["m"] = "head's"
    ledger.bound_here("m", ns["m"], (0,))
    assert send(ledger, ["m"], ns)[0] == {}


def test_definitions_that_are_gone_are_let_go(ledger, home_namespace):
    exec("def f(data=[1]): return data", home_namespace)
    send(ledger, ["f"], home_namespace)
    exec("def f(data=[2]): return data", home_namespace)
    gc.collect()
    send(ledger, ["f"], home_namespace)
    first = ledger.to_let_go((0,))
    assert len(first[1]) == 1 and len(first[0]) == 1
    assert ledger.to_let_go((0,)) == ((), ())
    assert ledger.to_let_go((1,)) == first, "each rank is told"


def test_a_name_made_anew_where_its_old_one_was_let_go(ledger):
    ns = {"x": [1]}
    ledger.sent(ledger.plan(["x"], ns, ALL), ALL)
    del ns["x"]
    assign(ledger, ["x"], ns)
    ns["x"] = [1]
    ns["y"] = {"x": ns["x"]}
    plan = ledger.plan(["y", "x"], ns, ALL)
    assert [(unit.shown, unit.points_at) for unit, _ in plan.sending] == [("y", set())]


def test_a_pull_from_some_ranks_marks_those(ledger):
    ns = {"x": [1]}
    ledger.bound_here("x", ns["x"], (0,))
    assert send(ledger, ["x"], ns)[0] == {"x": (1,)}


def test_a_rank_gets_the_text_of_code_once(ledger, home_namespace):
    exec(compile("def f(): return 1", "<cell>", "exec"), home_namespace)

    def texts(ranks):
        plan = ledger.plan(["f"], home_namespace, ranks)
        ledger.sent(plan, ranks)
        return [source.filename for source in plan.sources]

    assert texts((0,)) == ["<cell>"]
    assert texts((0,)) == []
    assert texts(ALL) == ["<cell>"], "rank 1 has none so far"
    ledger.forget()
    assert texts((0,)) == ["<cell>"]


def test_a_function_that_one_rank_has_goes_to_another_as_it_was_packed(ledger, home_namespace):
    exec("def f(): return 1", home_namespace)

    def sent(ranks):
        plan = ledger.plan(["f"], home_namespace, ranks)
        ledger.sent(plan, ranks)
        return {unit.labels: unit.bundle.digest for unit, _ in plan.sending}

    first = sent((0,))
    assert len(first) == 2, "the name, and the definition"
    assert sent((0,)) == {}
    assert sent((1,)) == first


# ── names of a checkpoint ───────────────────────────────────────────────────────────────


def test_what_ranks_have_from_a_checkpoint_is_theirs_as_if_they_had_lived(ledger):
    ns = {"model": [1], "rate": 1, "late": 1}
    ledger.sent(ledger.plan(["model", "rate"], ns, ALL), ALL, 1)
    ledger.sent(ledger.plan(["late"], ns, ALL), ALL, 3)
    ns["rate"] = 2  # after it was sent: the checkpoint's is older
    ledger.forget(resumes=True)
    assert ledger.newer_than(2) == ("late",)
    ledger.resumed({"model": ALL, "rate": ALL, "made": (1,)})
    assert send(ledger, ["model", "rate", "late", "made"], ns) == (
        {"rate": None, "late": None},
        {"model": "kept on ranks", "rate": "sent", "late": "sent", "made": "kept on ranks"},
    )
    ns["model"] = [2]
    assert set(send(ledger, ["model"], ns)[0]) == {"model"}
    assert ledger.newer_than(0) == ()


def test_what_new_ranks_have_from_a_checkpoint_is_theirs_until_the_notebooks_changes(ledger):
    ns = {"model": [1]}
    ledger.resumed({"model": ALL, "made": ALL})
    send(ledger, [], {})  # a question of ours
    assert send(ledger, ["model"], ns) == ({}, {"model": "kept on ranks"})
    ns |= {"model": [2], "made": 3}
    names = ["model", "made"]
    assert send(ledger, names, ns) == (dict.fromkeys(names), dict.fromkeys(names, "sent"))


def test_without_checkpoints_nothing_is_remembered_of_ranks_that_are_gone(ledger):
    ns = {"x": 1}
    ledger.sent(ledger.plan(["x"], ns, ALL), ALL, 5)
    ledger.forget()
    assert ledger.newer_than(0) == ()
