"""The frameworks of a rank: entered once in their order, left once in the opposite one."""

from contextlib import contextmanager

import pytest

from skyward_nb.node import rank_frameworks
from skyward_nb.node.rank_frameworks import RankFrameworks
from skyward_nb.plugins.plugin_base import PlainPlugin, RankContext
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.info import InstanceInfo


class Noted(PlainPlugin):
    """Notes when it is entered and left; one that fails raises when it is entered."""

    @contextmanager
    def enter(self, place, options):
        NOTES.append(f"enter {self.name} {place.info.generation} {options}")
        if self.name == "fails":
            raise RuntimeError("no such device")
        try:
            yield
        finally:
            NOTES.append(f"leave {self.name}")

    def env(self, info, options):
        return {"NOTED_RANK": str(info.rank), "NOTED_KIND": options.get("kind", "")}


NOTES = []


@pytest.fixture(autouse=True)
def plugins(monkeypatch):
    NOTES.clear()
    monkeypatch.setattr(rank_frameworks, "find_plugin", lambda name: Noted(name, (), ()))


def place(generation, rank=0):
    return RankContext(InstanceInfo(generation=generation, rank=rank), threads=1)


def test_once_in_order_and_back():
    ready = RankFrameworks((PluginUse("a", {"kind": "x"}), PluginUse("b")))
    ready.enter(place(1))
    ready.leave()
    ready.leave()
    ready.enter(place(2))
    ready.leave()
    assert NOTES == [
        "enter a 1 {'kind': 'x'}", "enter b 1 {}", "leave b", "leave a",
        "enter a 2 {'kind': 'x'}", "enter b 2 {}", "leave b", "leave a",
    ]  # fmt: skip


def test_one_that_cannot_be_entered_leaves_those_before():
    ready = RankFrameworks((PluginUse("a"), PluginUse("fails"), PluginUse("c")))
    with pytest.raises(RuntimeError, match="no such device"):
        ready.enter(place(1))
    assert NOTES == ["enter a 1 {}", "enter fails 1 {}", "leave a"]
    ready.leave()
    assert len(NOTES) == 3


def test_variables_of_a_new_place_but_for_those_that_somebody_else_has_set(monkeypatch):
    ready = RankFrameworks((PluginUse("a", {"kind": "x"}),))
    variables = {"NOTED_RANK": "0", "NOTED_KIND": "mine", "RANK": "0"}
    monkeypatch.setattr(rank_frameworks.os, "environ", variables)
    ready.move(InstanceInfo(), InstanceInfo(rank=3, world_size=4, generation=2))
    assert (variables["NOTED_RANK"], variables["RANK"]) == ("3", "3")
    assert variables["NOTED_KIND"] == "mine"
