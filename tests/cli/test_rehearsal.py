"""A rehearsal whose pools are played: what counts of a person's defaults, and what an act's failure ends."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from skyward_nb.cli import rehearsal
from skyward_nb.cli.command_table import read
from skyward_nb.words.errors import OptionError
from skyward_nb.words.findings import Findings, RankFacts
from skyward_nb.words.offers import Quote

FACTS = [
    RankFacts(rank=n, node=n, host=f"ip-{n}", address="10.0.0.1", device="CPU", memory=1)
    for n in (0, 1)
]


@pytest.fixture
def played(monkeypatch):
    """Plays the acts that are named, at 1 dollar an hour: the pools' options, and what came of it."""
    asked = []

    @contextmanager
    def opened(options, known, display, program):
        assert known == []
        asked.append(options)
        spec = SimpleNamespace(name=options.pool, nodes=options.nodes)
        yield SimpleNamespace(pool=SimpleNamespace(spec=spec), ask=lambda *_: {})

    monkeypatch.setattr(rehearsal, "open_pool", opened)
    monkeypatch.setattr(Quote, "most", 1.0)
    monkeypatch.setattr(rehearsal, "quote_for", lambda spec: Quote(nodes=spec.nodes, offers=()))
    monkeypatch.setattr(rehearsal, "clean_up", lambda: SimpleNamespace(rented=None))
    monkeypatch.setattr(rehearsal, "_alive", lambda name: [])
    monkeypatch.setattr(rehearsal, "survey", lambda spec, ask: iter([Findings(ranks=tuple(FACTS))]))

    def play(*words):
        asked.clear()
        line = ["aws", "yes", *words]
        return rehearsal.rehearse(read("rehearse", line), line, lambda _: None), list(asked)

    return play


def test_of_defaults_those_count_that_say_where_to_rent(played, monkeypatch):
    for name, text in {"KEEP": "yes", "NODES": "3", "REGION": "eu-west-1", "TAGS": "team=a", "MAX_COST": "1"}.items():  # fmt: skip
        monkeypatch.setenv(f"SKYWARD_{name}", text)
    _, (first, second) = played("cpu", "torch", "tags=team=b")
    assert (first.nodes, first.region, first.tags) == (2, ("eu-west-1",), (("team", "b"),))
    assert not second.keep and second.nodes != 3
    assert first.max_cost == 1.0 and second.yes
    with pytest.raises(OptionError, match="max_cost=2"):
        played("torch", "jax", "efa", "cpu", "killed")


def test_an_act_whose_ranks_raise_ends_no_other_and_shows_what_was_found(played, monkeypatch):
    def survey(spec, ask):
        yield Findings(ranks=tuple(FACTS))
        raise RuntimeError("NCCL: unhandled system error")

    monkeypatch.setattr(rehearsal, "survey", survey)
    found, pools = played("cpu", "efa")
    assert [each.trouble for each in found.acts] == [
        "RuntimeError: NCCL: unhandled system error"
    ] * 2
    assert found.acts[0].checks[0].holds and not found.holds
    assert len({each.pool for each in pools}) == 2


def test_machines_that_are_left_are_told(played, monkeypatch):
    monkeypatch.setattr(rehearsal, "_alive", lambda name: ["i-1"] if "cpu" in name else [])
    monkeypatch.setattr(rehearsal, "others", lambda _: ())
    found, _ = played("cpu")
    assert found.left == ("i-1",) and not found.holds
    assert not found.acts[0].checks[-1].holds
