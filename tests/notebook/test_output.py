"""What ranks print and display, in a real kernel: live, late, strange, huge, and on disk."""

import json
import re

import pytest
from kernels import Ran, ready
from waiting import until

from skyward_nb.picture.record import MIME

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def notebook():
    with ready("%sky up nodes=4") as running:
        yield running


def ranks(notebook, body, options="", **keywords) -> Ran:
    return notebook.run(f"%%sky_remote {options}\n{body}", **keywords)


def said(ran: Ran) -> list[str]:
    """The lines of output in a picture."""
    return lines(ran.picture)


def lines(picture: str) -> list[str]:
    """The lines of output; the others tell of memory, too, where a run went on for longer than it takes by itself."""
    return [line for line in picture.splitlines() if line.startswith("[")]


# ── live, and in the end ────────────────────────────────────────────────────────────────

SLOW = """
import os, time
import skyward_nb as sky
for i in sky.progress(range(12), desc="epoch"):
    print("step", i)
    sky.log(loss=1 / (i + 1))
    time.sleep(0.1)
"""
UNTIL = """
    while i > 8 and not os.path.exists({path!r}):
        time.sleep(0.01)
"""
SIZE = r"[\d.]+ [MG]B"


def test_widgets_change_while_it_runs_and_one_bundle_is_kept(notebook, tmp_path):
    seen = tmp_path / "seen"
    body = SLOW.replace("0.1)", "0.2)") + UNTIL.format(path=str(seen)).removeprefix("\n")
    ran = ranks(
        notebook,
        body,
        on_update=lambda text: re.search(SIZE, text) and "●" in text and seen.touch(),
    )
    heads = [(at.timestamp(), text) for at, text in ran.shown if "●" in text]
    first, last = ran.displays
    assert WIDGET in first
    assert set(last) == {"text/html", "text/plain", MIME}
    # A rank has a row once it has begun: one that is late begins at 0.
    rows = [re.findall(r"(\d+)/12", text) for _, text in heads]
    parts = [min(map(int, found)) for found in rows if len(found) == 4]
    assert parts == sorted(parts)
    assert len(set(parts)) > 4
    assert "epoch 12/12 · 100%" in ran.picture
    for at, _ in heads:
        assert sum(at <= other < at + 1 for other, _ in heads) <= 10
    curves = [text for text in ran.live if "data:image/svg+xml" in text]
    assert curves


def test_whoever_takes_no_input_gets_bundles_and_no_widgets(notebook):
    notebook.client.allow_stdin = False
    try:
        ran = ranks(notebook, SLOW)
    finally:
        notebook.client.allow_stdin = True
    assert not ran.live
    assert all(WIDGET not in data for data in ran.displays)
    # The first, one each second, and the last.
    assert 2 <= len(ran.displays) <= 3 + ran.displays[-1][MIME]["seconds"]
    assert "epoch 12/12 · 100%" in ran.picture


def test_a_quiet_cell_draws_nothing_and_is_logged(notebook):
    ran = ranks(notebook, "print('nobody sees this')", "quiet")
    assert (ran.displays, ran.live) == ([], [])
    assert "[0] nobody sees this" in notebook.run("%sky logs").stdout


# ── what comes late ─────────────────────────────────────────────────────────────────────

WHEN_TOLD = """
import os, threading, time
def later():
    while not os.path.exists({path!r}):
        time.sleep(0.01)
    print("late from A")
    open({path!r} + os.environ["RANK"], "w").close()
threading.Thread(target=later).start()
print("in time from A")
"""


def test_what_a_thread_prints_after_its_cell_appears_in_the_picture_of_its_cell(notebook, tmp_path):
    told = tmp_path / "told"
    ran = ranks(notebook, WHEN_TOLD.format(path=str(told)))
    assert said(ran) == ["[0-3] in time from A"]
    told.touch()
    *_, late = notebook.updates(30, "[0-3] late")
    assert said(Ran("", displays=[{"text/plain": late}])) == [
        "[0-3] in time from A",
        "[0-3] late from A",
    ]


def test_what_came_while_the_notebook_was_busy_is_not_lost(notebook, tmp_path):
    told = str(tmp_path / "told")
    body = WHEN_TOLD.format(path=told)
    ran = notebook.run(
        f"magic = get_ipython().run_cell_magic\nmagic('sky_remote', 'ranks=0', {body!r})\n"
        f"import os, time\nopen({told!r}, 'w').close()\n"
        f"while not os.path.exists({told + '0'!r}):\n    time.sleep(0.01)\n"
        "magic('sky_remote', 'ranks=0', 'print(2)')"
    )
    assert ran.status == "ok"
    assert any(
        lines(shown["text/plain"]) == ["[0] in time from A", "[0] late from A"]
        for shown in ran.displays
    )


def test_what_comes_many_cells_later_is_in_the_logs(notebook, tmp_path):
    told = str(tmp_path / "told")
    first = ranks(notebook, WHEN_TOLD.format(path=told), "ranks=0")
    for _ in range(10):
        ranks(notebook, "1;", "ranks=0")
    ranks(
        notebook,
        f"open({told!r}, 'w').close()\nwhile not os.path.exists({told + '0'!r}): time.sleep(0.01)",
        "ranks=0",
    )
    assert "[0] late from A" in notebook.run("%sky logs run=" + run_of(first)).stdout


def test_two_cells_that_print_at_once_have_their_own_pictures(notebook, tmp_path):
    told = str(tmp_path / "told")
    first = ranks(notebook, WHEN_TOLD.format(path=told))
    second = ranks(
        notebook,
        f"open({told!r}, 'w').close()\n"
        f"while not os.path.exists({told!r} + os.environ['RANK']):\n    time.sleep(0.01)\n"
        "print('from B')",
    )
    assert said(second) == ["[0-3] from B"]
    assert said(first) == ["[0-3] in time from A"]
    *_, late = second.others
    # A run that takes long is sampled, and has a line on its memory, too.
    assert lines(late["text/plain"]) == [
        "[0-3] in time from A",
        "[0-3] late from A",
    ]
    assert "late from A" in notebook.run("%sky logs run=" + run_of(first)).stdout


def run_of(ran: Ran) -> str:
    return ran.displays[-1][MIME]["run"]


def test_a_rank_that_prints_between_cells_does_not_wait_for_anybody(notebook):
    body = """
    import threading
    written = []
    def work():
        for i in range(200):
            print("x" * 10_000)
            written.append(i)
    threading.Thread(target=work).start()
    """
    ranks(notebook, re.sub("^    ", "", body, flags=re.M), "ranks=0")
    for _ in range(50):
        notebook.updates(0.2)
        ran = ranks(notebook, "len(written)", "ranks=0")
        if ran.result == "[0] 200":
            break
    assert ran.result == "[0] 200"


def test_a_display_is_updated_by_a_later_cell_where_it_stands(notebook):
    first = ranks(notebook, "handle = display('one', display_id=True)", "ranks=0")
    second = ranks(notebook, "handle.update('two')\nprint('updated')", "ranks=0")
    assert said(first) == ["[0] 'one'"]
    assert said(second) == ["[0] updated"]
    (changed,) = second.others
    assert lines(changed["text/plain"]) == ["[0] 'two'"]


# ── strange and huge ────────────────────────────────────────────────────────────────────


def test_bytes_that_are_no_text_break_nothing(notebook):
    body = "import os\nos.write(1, bytes(range(256)))\nos.write(2, b'\\xff\\xfe\\n')\nprint('\\ud800 after')"
    ran = ranks(notebook, body)
    assert ran.status == "ok"
    assert any(line.endswith("\\ud800 after") for line in said(ran))
    assert not set(ran.picture) & {chr(code) for code in (*range(9), 11, 12, *range(14, 32))}


def test_a_line_of_a_hundred_megabytes_is_counted(notebook):
    ran = ranks(notebook, "print('y' * 100_000_000)", "ranks=0", timeout=100)
    assert "99,998,000 more characters" in ran.picture
    assert len(ran.html) < 20_000


def test_a_repr_that_raises_is_told_and_the_cell_goes_on(notebook):
    body = """
class Bad:
    def __repr__(self): raise ValueError("no repr today")
display(Bad())
class Worse:
    def _repr_html_(self): raise KeyError("html")
    def __repr__(self): return "Worse()"
display(Worse())
print("after")
"""
    ran = ranks(notebook, body)
    assert ran.status == "ok"
    for line in ("ValueError: no repr today", "KeyError: 'html'", "Worse()", "after"):
        assert f"[0-3] {line}" in said(ran)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(2): list(sky.progress(range(2), desc=i))",
        "list(sky.progress(range(2), total='2', desc='\\ud800'))",
        "display('x', display_id=5)",
        "display('x', display_id='\\ud800')",
        "display({'\\ud800': 'x', 3: 'y'}, raw=True)",
        "from IPython.display import clear_output\nclear_output(wait='yes')",
    ],
)
def test_what_code_on_a_rank_hands_over_does_not_break_the_wire(notebook, body):
    ran = ranks(notebook, f"import skyward_nb as sky\nstill_here = 1\n{body}\nprint('after')")
    assert (ran.status, said(ran)[-1].endswith("] after")) == ("ok", True)
    assert ranks(notebook, "still_here", "ranks=0").result == "[0] 1"


def test_a_widget_of_a_rank_is_a_note(notebook):
    ran = ranks(notebook, "import ipywidgets\ndisplay(ipywidgets.IntSlider(value=3))")
    assert ran.status == "ok"
    assert "IntSlider(value=3)" in ran.html
    assert "widget" in ran.html
    assert WIDGET not in ran.displays[-1]


def test_a_huge_figure_is_named_instead(notebook):
    body = "from IPython.display import Image\ndisplay(Image(data=bytes(50_000_000), format='png'))"
    ran = ranks(notebook, body)
    assert ran.status == "ok"
    assert "50 MB" in ran.picture
    assert len(ran.html) < 20_000


def test_markup_that_is_printed_is_text(notebook):
    ran = ranks(notebook, "print('<script>alert(1)</script><b>x</b>')")
    assert "<script>" not in ran.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in ran.html


def test_html_that_is_displayed_stays_in_its_box(notebook):
    body = "from IPython.display import HTML\ndisplay(HTML('</div></div></form><b>bold'))\nprint('after')"
    ran = ranks(notebook, body)
    assert 'srcdoc="&lt;/div&gt;&lt;/div&gt;&lt;/form&gt;&lt;b&gt;bold"' in ran.html
    assert ran.html.count("<div") == ran.html.count("</div>")


def test_warnings_logging_c_code_and_children_are_heard_in_order(notebook):
    body = """
import ctypes, logging, subprocess, sys, warnings
print("one")
warnings.warn("two", stacklevel=1)
logging.warning("three")
sys.stdout.flush(); ctypes.CDLL(None).puts(b"four"); ctypes.CDLL(None).fflush(None)
subprocess.run(["echo", "five"])
print("six")
"""
    ran = ranks(notebook, body, "ranks=0")
    found = re.findall("one|two|three|four|five|six", " ".join(said(ran)))
    assert list(dict.fromkeys(found)) == ["one", "two", "three", "four", "five", "six"]


def test_colours_and_bars_act_as_in_a_terminal(notebook):
    body = "print('\\x1b[31mred\\x1b[0m'); print('10%\\r100%'); print('a\\nb\\x1b[1A\\rA\\n')"
    ran = ranks(notebook, body)
    assert said(ran)[:3] == ["[0-3] red", "[0-3] 100%", "[0-3] A"]
    assert "color:" in ran.html.partition("red</span>")[0][-60:]


# ── bounds and logs ─────────────────────────────────────────────────────────────────────


def test_much_output_is_bounded_and_the_rest_is_in_the_logs(notebook, tmp_path):
    ran = ranks(
        notebook,
        "import os\nfor i in range(50_000): print('line', i, 'of', os.environ['RANK'])",
    )
    cut = next(part for part in ran.displays[-1][MIME]["output"] if part["type"] == "cut")
    shown = sum(
        (len(part["lines"]) + part.get("in_html", 0)) * len(part["ranks"])
        for part in ran.displays[-1][MIME]["output"]
        if part["type"] == "text"
    )
    assert shown + cut["lines"] == 200_000
    assert len(ran.displays[-1]["text/plain"]) < 400_000
    assert sum(len(each["text/html"]) for each in ran.displays) < 1_500_000
    assert "lines not shown" in ran.html and "prints all of them" in ran.picture
    assert "line 49999 of" in ran.picture
    *before, last = (len(json.dumps(each)) for each in ran.displays)
    assert all(each < 0.1 * last for each in before), "nothing is sent twice"
    # How many there are depends on the time it takes; that all are little for a run of usual length is for the bench.
    assert ran.bytes - sum(before) - last < 1_500 * ran.messages
    command = re.search(r"%sky logs run=\d+", ran.picture)[0]
    path = tmp_path / "all.log"
    told = notebook.run(f"{command} rank=2 save={path}").stdout
    assert "50,000 lines" in told
    assert path.read_text().splitlines() == [f"[2] line {i} of 2" for i in range(50_000)]
    again = notebook.run(f"{command} save={path}")
    assert "this file exists already" in again.stderr
    tail = notebook.run(f"{command} rank=0,3 lines=4").stdout.splitlines()
    assert len(tail) == 4
    assert {line[:3] for line in tail} <= {"[0]", "[3]"}


def test_the_text_that_is_kept_can_be_chosen(notebook):
    ran = ranks(notebook, "for i in range(5000): print(i)", "text=2kB")
    assert len(ran.picture) < 4000
    assert "… " in ran.picture
    assert " lines not shown: %sky logs run=" in ran.picture


def test_logs_of_a_run_that_is_not_there(notebook):
    wrong = notebook.run("%sky logs run=4711")
    assert "run=4711: its output is not on disk; there is" in wrong.stderr


def test_hidden_output_is_in_the_logs(notebook):
    ran = ranks(
        notebook,
        "print('secret')\nimport sys\nprint('err', file=sys.stderr)",
        "stdout=none stderr=1",
    )
    assert said(ran) == ["[1] err"]
    first, *lines = notebook.run("%sky logs rank=0").stdout.splitlines()
    assert re.fullmatch(r"run default-\w+/\d+, (just now|\d+ s ago)", first)
    assert lines == ["[0] secret", "[0] err"]


def test_logs_of_ranks_that_printed_nothing_say_so(notebook):
    run = run_of(ranks(notebook, "import os\nif os.environ['RANK'] != '3': print('x')"))

    def told(which):
        return notebook.run(f"%sky logs run={run} rank={which}").stdout

    assert told("2,3,9") == f"[2] x\nno output of ranks 3,9 in run {run}\n"
    assert told("3") == f"no output of rank 3 in run {run}\n"
    assert told("all") == told("0-2")
    assert told("7:") == f"no output of these ranks in run {run}\n"


def test_logs_of_machines(notebook):
    ranks(notebook, "import os\nos.write(2, b'')")
    said = notebook.run("%sky logs node=0").stdout
    assert "no log is kept of node=0 of pool default-" in said
    assert "provider=local prepares no machines" in said
    for line, why in (
        ("node=9", "has local (nodes "),
        ("node=0 run=3", "run=3 selects the output of a run"),
        ("node=0 pool=nosuch", "no log is kept of machines of pool 'nosuch'"),
    ):
        assert why in notebook.run(f"%sky logs {line}").stderr


def test_a_child_that_writes_much_is_not_held_up(notebook):
    body = "import subprocess\nsubprocess.run('head -c 5000000 /dev/zero | tr \"\\\\0\" z', shell=True);"
    ran = ranks(notebook, body, "ranks=0")
    assert "4,998,000 more characters" in ran.picture


def test_a_letter_begun_in_one_cell_does_not_end_in_the_next(notebook):
    first = ranks(notebook, "import os\nos.write(1, b'\\xe2\\x82');", "ranks=0")
    second = ranks(notebook, "os.write(1, b'ok\\n');", "ranks=0")
    assert said(second) == ["[0] ok"]
    assert len(said(first)) <= 1


def test_a_process_that_a_cell_forks_ends_with_the_cell(notebook):
    # Newer Pythons warn of forking beside threads, one of which a rank has.
    body = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
pid = os.fork()
if pid == 0:
    {}
else:
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert said(ranks(notebook, body.format("print('child')"), "ranks=0")) == [
        "[0] child",
        "[0] status 0",
    ]
    assert said(ranks(notebook, body.format("sys.exit(3)"), "ranks=0")) == ["[0] status 3"]
    failed = said(ranks(notebook, body.format("raise ValueError('child')"), "ranks=0"))
    assert failed[-2:] == ["[0] ValueError: child", "[0] status 1"]
    assert not any("skyward_nb" in line for line in failed)


def test_an_update_of_an_earlier_cells_display_changes_that_cells_picture(notebook):
    first = ranks(notebook, "handle = display('before', display_id=True)", "ranks=0")
    second = ranks(notebook, "handle.update('after')\nprint('B')", "ranks=0")
    assert said(first) == ["[0] 'before'"]
    assert said(second) == ["[0] B"]
    (other,) = second.others
    assert "[0] 'after'" in other["text/plain"]


def test_what_a_thread_prints_while_ranks_begin_anew_is_not_the_verbs(notebook):
    body = """
import threading
def flood():
    for i in range(10**7): print("spam", i)
threading.Thread(target=flood).start()
"""
    first = ranks(notebook, body, "ranks=0")
    restarted = notebook.run("%sky restart")
    assert "spam" not in restarted.picture
    # On a busy machine none may come just then.
    drawn = [first.picture, *(each["text/plain"] for each in restarted.others)]
    assert "spam" in drawn[-1]


def test_a_bundle_whose_types_are_no_text_is_shown(notebook):
    body = """
class Odd:
    def _repr_mimebundle_(self, **_): return {3: "x", "text/plain": 5}
display(Odd())
print("after")
"""
    ran = ranks(notebook, body)
    assert ran.status == "ok"
    assert "[0-3] after" in said(ran)


# ── the last known picture ──────────────────────────────────────────────────────────────


def from_lab(notebook, code):
    """Run a cell as JupyterLab asks for it."""
    session, channel = notebook.client.session, notebook.client.shell_channel
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
    message = session.msg("execute_request", content, metadata={"deletedCells": []})
    channel.send(message)
    return notebook.finish(message["header"]["msg_id"])


def test_what_lab_saves_in_mid_run_has_a_picture_beside_the_widgets(notebook):
    from_lab(notebook, "%%sky_remote\n1")
    ran = from_lab(notebook, "%%sky_remote\nimport time\nprint('first words'); time.sleep(0.6)")
    kept, live, *later = ran.displays
    assert WIDGET not in kept
    assert WIDGET in live
    assert "Running on" in kept["text/plain"]
    assert re.search(r"Drawn at \d\d:\d\d:\d\d; %sky show run=\S+/\d+ draws it", kept["text/plain"])
    assert (live["text/html"], live["text/plain"]) == ("", "")
    assert ran.cleared == 1, "the last picture takes the place of both"
    assert "finished" in later[-1]["text/plain"]
    assert "Drawn at" not in later[-1]["text/plain"]
    assert any("finished" in text for text in ran.live), (
        "a page opened in mid-run has widgets alone"
    )


def test_what_a_cell_of_lab_has_shown_beside_its_picture_stays(notebook):
    from_lab(notebook, "%%sky_remote\n1")
    magic = "get_ipython().run_cell_magic('sky_remote', '', 'import time; time.sleep(0.6)')"
    for code, cleared in ((f"print('mine')\n{magic}", 0), (f"{magic}; {magic}", 1)):
        ran = from_lab(notebook, code)
        assert ran.cleared == cleared
        assert ran.displays[-1] == {"text/html": "", "text/plain": ""}
        assert "finished" in ran.displays[-2]["text/plain"]


def test_any_run_is_shown_again_in_full(notebook):
    ran = ranks(notebook, "for i in range(50): print('line', i)\nimport time; time.sleep(0.3)")
    run = ran.displays[-1][MIME]["run"]
    number = run.rpartition("/")[2]
    for line in ("%sky show", f"%sky show run={number}", f"%sky show run={run}"):
        again = notebook.run(line)
        assert again.picture == ran.picture, line
        assert again.displays[0][MIME] == ran.displays[-1][MIME]
    for _ in range(9):  # more than are known by heart
        ranks(notebook, "1")
    assert notebook.run(f"%sky show run={number}").picture == ran.picture
    assert "run=99999: there is no picture of it" in notebook.run("%sky show run=99999").stderr
    assert "run=x: write a number such as 7" in notebook.run("%sky show run=x").stderr


def test_a_run_in_the_background_is_shown_as_it_is(notebook, tmp_path):
    go = tmp_path / "go"
    code = f"import time, pathlib\nprint('begun')\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)"
    ranks(notebook, code, "detach out=handle")
    until(lambda: "begun" in notebook.run("%sky show").picture)
    assert "Drawn at" in notebook.run("%sky show").picture
    go.touch()
    notebook.run("handle.wait()")
    assert "finished" in notebook.run("%sky show").picture
