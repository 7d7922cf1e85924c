"""The record for front ends: its schema is that of the file, and it says what the picture says."""

import json
from pathlib import Path

import pytest
from later import Later
from picture import views

from skyward_nb.picture import record
from skyward_nb.picture.page import as_html
from skyward_nb.protocol.events import Metric, Output
from skyward_nb.show.canvas import bundle
from skyward_nb.show.run_progress import picture_of
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView

jsonschema = Later("jsonschema")

SCHEMA = Path(record.__file__).with_name("run.schema.json")
GOLDEN = Path(__file__).with_name("golden")
KINDS = {"starting": views.starting, "running": views.running, "finished": views.finished}


def test_the_schema_is_made_from_the_types():
    assert SCHEMA.read_bytes() == record.schema(), "run: make schema"


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_as_they_were(kind):
    found = record.as_json(KINDS[kind]())
    path = GOLDEN / f"{kind}.json"
    assert found == json.loads(path.read_text()), f"if that is meant, write it anew: {path}"


@pytest.mark.parametrize("make", [*KINDS.values(), views.busy, lambda: views.running(64)])
def test_records_follow_the_schema(make):
    jsonschema.validate(record.as_json(make()), json.loads(SCHEMA.read_text()))


def test_what_is_not_finite_is_null():
    view = fold(RunView(ranks={0: RankView()}), Metric(0, 0, {"loss": float("nan")}))
    found = record.as_json(view)
    assert found["ranks"][0]["metrics"] == {"loss": None}
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    json.dumps(found, allow_nan=False)


def test_figures_are_found_in_the_page_by_their_anchor():
    view = views.finished()
    (figure,) = [part for part in record.as_json(view)["output"] if part["type"] == "display"]
    assert figure["types"] == ["image/png", "text/plain"]
    assert figure["data"] == {"text/plain": "<Figure>"}
    assert f'id="{figure["anchor"]}"' in as_html(view)


def test_lines_of_the_same_ranks_are_one_block():
    view = fold(RunView(), Output(0, "stdout", "a\nb\n"), Output(0, "stderr", "c\n"))
    assert [part["lines"] for part in record.as_json(view)["output"]] == [["a", "b"], ["c"]]


def test_a_record_of_many_metrics_is_bounded():
    events = [
        Metric(rank, step, {f"m{n}": 1.0 * step for n in range(20)})
        for rank in range(16)
        for step in range(400)
    ]
    found = record.as_json(fold(RunView(ranks={rank: RankView() for rank in range(16)}), *events))
    assert all(len(rank["curves"]) == 20 for rank in found["ranks"])
    assert sum(len(c["steps"]) for rank in found["ranks"] for c in rank["curves"].values()) <= 20000


def test_what_is_printed_much_is_saved_once():
    lines = [
        Output(0, "stdout", f"step {n}: loss {n / 7:.9f}, 312.4 items/s\n") for n in range(5000)
    ]
    red = "\x1b[31mred\x1b[0m"
    view = fold(RunView(most_text=1 << 20), *lines[:-1], Output(0, "stderr", f"{red}\n"), lines[-1])
    printed = sum(len(line.text) for line in lines)
    assert printed < len(json.dumps(bundle(view))) < 1.5 * printed
    found = record.as_json(view, in_html=True)
    assert [(part["lines"], part.get("in_html")) for part in found["output"]] == [
        ([], 4999), ([red], None), ([], 1),
    ]  # fmt: skip
    assert found == bundle(view)[record.MIME]
    assert found["version"] == 2, "readers of version 1 would show no lines"
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))


def test_a_record_without_its_html_has_all_lines():
    lines = [Output(0, "stdout", f"step {n}: loss {n / 7:.90f}\n") for n in range(250)]
    view = fold(RunView(most_text=1 << 20), *lines)
    assert bundle(view)[record.MIME]["output"][0]["in_html"] == 250
    picture = picture_of(view)
    assert not picture["text/html"]
    found = picture[record.MIME]
    assert found["version"] == 1
    assert [f"{each}\n" for each in found["output"][0]["lines"]] == [each.text for each in lines]
