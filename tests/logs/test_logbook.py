"""The logbook: all that ranks print, bounded, read back from whatever is left of it."""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skyward_nb.logs import log_files
from skyward_nb.logs.log_files import LogLimits, find, part_path, runs
from skyward_nb.logs.log_reader import LONGEST_LINE, LogLine, follow, read
from skyward_nb.logs.logbook import Logbook
from skyward_nb.protocol.events import Display, Output, Phase
from skyward_nb.protocol.frames import frame
from skyward_nb.words.errors import OptionError

SMALL = LogLimits(head=1000, part=500, parts=3, block=1, everything=1_000_000, runs=1000)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"


def texts(pool_id, run, **wanted):
    return [line.text for line in read(pool_id, run, **wanted) if line.rank is not None]


def notes(pool_id, run):
    return [line.text for line in read(pool_id, run) if line.stream == "note"]


def open_files():
    """How many files of logs are open; threads of tests before may still close others."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(each.readlink()).startswith(f"{log_files.log_root()}/")
    return found


def written(pool_id, *events, limits=log_files.LIMITS):
    book = Logbook(pool_id, limits)
    for event in events:
        book.write(event)
    book.close()
    assert book.trouble == ""


# ── lines ───────────────────────────────────────────────────────────────────────────────


def test_lines_stand_whole_in_the_order_of_their_ends():
    written(
        "p-1",
        Output(0, "stdout", "first of ", 3),
        Output(1, "stdout", "one\ntwo\nthr", 3),
        Output(0, "stderr", "warned\n", 3),
        Output(0, "stdout", "zero\n\nopen", 3),
        Output(1, "stdout", "ee\n", 3),
    )
    assert list(read("p-1", 3)) == [
        LogLine(1, "stdout", "one"),
        LogLine(1, "stdout", "two"),
        LogLine(0, "stderr", "warned"),
        LogLine(0, "stdout", "first of zero"),
        LogLine(0, "stdout", ""),
        LogLine(1, "stdout", "three"),
        LogLine(0, "stdout", "open"),
    ]


def test_ranks_can_be_chosen():
    written(
        "p-1",
        *(Output(rank, stream, f"{rank} {stream}\n") for rank in (0, 1) for stream in ("stdout", "stderr")),
        Display(1, {"text/plain": "<Figure>"}),
    )  # fmt: skip
    assert texts("p-1", 0, ranks=[1]) == ["1 stdout", "1 stderr", "<Figure>"]
    assert texts("p-1", 0, ranks={0}) == ["0 stdout", "0 stderr"]


def test_a_run_is_followed_over_its_parts_until_it_is_over():
    book = Logbook("p-1", SMALL)
    events = [Output(n % 2, "stdout", f"line {n} {'x' * 40}\n", 1) for n in range(100)]
    ahead = iter(events)
    book.write(next(ahead))
    looks = 0

    def pause():
        nonlocal looks
        looks += 1
        # So many at once that a part which was begun is dropped before it is read.
        for _ in range(30 if looks == 3 else 5):
            event = next(ahead, None)
            if event is None:
                return book.close()
            book.write(event)
        return None

    found = [line for line in follow("p-1", 1, None, pause) if line is not None]
    assert looks > 5
    said = [int(line.text.split()[1]) for line in found if line.rank is not None]
    assert said == sorted(set(said)) and said[-1] == 99
    (gap,) = [line.text for line in found if line.stream == "note"]
    assert gap == "some output is no longer kept"
    # Of a run that is over, what `read` gives; of one rank, its lines.
    again = [line.text for line in follow("p-1", 1, None, pause) if line.rank is not None]
    assert again == texts("p-1", 1)
    assert {line.rank for line in follow("p-1", 1, [1], pause)} == {1, None}
    assert [line.text for line in follow("p-1", 9, None, pause)] == [
        "nothing of run p-1/9 is on disk"
    ]


def test_who_follows_a_run_that_ends_in_the_middle_is_told_and_no_part_stays_open():
    book = Logbook("p-1", SMALL)
    for n in range(100):
        book.write(Output(0, "stdout", f"line {n} {'x' * 40}\n", 1))
    before = open_files()
    open_parts = []
    lines = follow("p-1", 1, None, book.close)
    for line in lines:
        open_parts.append(open_files() - before)
        if line is None:
            break
    assert max(open_parts) == 2  # the first, which tells that it goes on, and the present one
    with part_path("p-1", 1, log_files.kept("p-1", 1).parts[-1]).open("ab") as file:
        file.write(b"\x30\x00\x00\x00cut")
    assert "ends in the middle" in list(lines)[-1].text


def test_what_waited_for_a_second_is_written_without_more_of_it():
    book = Logbook("p-1")
    book.write(Output(0, "stdout", "first\n", 1))
    for log in book._runs.values():
        log.written += 1000  # however long this takes
    book.flush_late()
    assert texts("p-1", 1) == []
    for log in book._runs.values():
        log.written -= 1002
    book.flush_late()
    assert texts("p-1", 1) == ["first"]
    book.close()


def test_of_what_is_displayed_the_words_stay(root):
    picture = "iVBOR" * 10_000
    written(
        "p-1",
        Display(2, {"image/png": picture, "text/plain": "<Figure>\nof two lines"}, "id", True, 4),
        Display(2, {"text/html": "<b>only</b>"}, run=4),
    )
    assert texts("p-1", 4) == ["(image/png) <Figure>", "of two lines", "(text/html)"]
    assert sum(file.stat().st_size for file in root.rglob("*.log")) < 500


def test_a_line_without_an_end_comes_in_pieces():
    piece = "x" * 400_000
    written("p-1", *[Output(0, "stdout", piece)] * 5)
    found = texts("p-1", 0)
    assert "".join(found) == piece * 5
    assert max(map(len, found)) <= LONGEST_LINE + len(piece)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["stdout", "stderr"]), st.text("ab\n\r", max_size=6)),
        max_size=60,
    )
)  # fmt: skip
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_rank_printed_is_what_is_read(printed):
    shutil.rmtree(log_files.log_root(), ignore_errors=True)
    written("p-h", Output(0, "stdout", "", 1), *(Output(r, s, text, 1) for r, s, text in printed))
    for rank in range(3):
        for stream in ("stdout", "stderr"):
            said = "".join(t for r, s, t in printed if (r, s) == (rank, stream))
            found = "\n".join(line.text for line in read("p-h", 1, [rank]) if line.stream == stream)
            assert found == said.removesuffix("\n")


# ── files ───────────────────────────────────────────────────────────────────────────────


def test_a_run_that_prints_nothing_makes_no_file(root):
    book = Logbook("p-1")
    book.end(1)
    book.flush()
    book.close()
    assert not root.exists()


def test_nobody_else_can_read_it(root):
    before = os.umask(0)
    try:
        written("p-1", *[Output(0, "stdout", "secret\n" * 100, 1)] * 5, limits=SMALL)
    finally:
        os.umask(before)
    assert len(list((root / "p-1").iterdir())) > 1
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_late_output_goes_to_its_own_run():
    book = Logbook("p-1")
    book.write(Output(0, "stdout", "one\n", 1))
    book.end(1)
    book.write(Output(0, "stdout", "two\n", 2))
    book.write(Output(0, "stdout", "late\n", 1))
    book.end(2)
    assert texts("p-1", 1) == ["one", "late"]
    assert texts("p-1", 2) == ["two"]
    book.close()


def test_the_log_of_a_run_that_goes_on_is_followed_past_the_end_of_a_later_one():
    book = Logbook("p-1")
    book.write(Output(0, "stdout", "one\n", 1))
    book.write(Output(0, "stdout", "one\n", 2))
    book.flush()
    book.end(2, going=(1,))

    def print_more():
        book.write(Output(0, "stdout", "two\n", 1))
        book.end(1)

    lines = follow("p-1", 1, None, print_more)
    assert [line.text for line in lines if line is not None] == ["one", "two"]
    book.close()


def test_files_are_closed_when_their_run_has_ended():
    before = open_files()
    book = Logbook("p-1", SMALL)
    for run in range(1, 20):
        book.write(Output(0, "stdout", "x" * 700, run))
        book.write(Output(0, "stdout", "x" * 700, run))
        book.write(Output(0, "stdout", "late", run - 1))
        book.end(run)
    assert open_files() == before
    book.close()


# ── limits ──────────────────────────────────────────────────────────────────────────────


def test_a_long_run_keeps_its_head_and_its_tail_and_counts_the_rest(root):
    lines = [f"line {number:05}" for number in range(2000)]
    written("p-1", *(Output(0, "stdout", f"{line}\n", 1) for line in lines), limits=SMALL)
    found = texts("p-1", 1)
    (note,) = notes("p-1", 1)
    at = next(index for index, line in enumerate(read("p-1", 1)) if line.stream == "note")
    gone = len(lines) - len(found)
    assert f"in {gone:,} lines are not kept" in note
    assert found == lines[:at] + lines[at + gone :]
    assert at > 10
    size = sum(file.stat().st_size for file in root.rglob("*.log*"))
    assert size <= SMALL.head + SMALL.parts * SMALL.part
    assert size >= SMALL.head + (SMALL.parts - 1) * SMALL.part - 100


def test_a_long_run_goes_on_where_it_was():
    book = Logbook("p-1", SMALL)
    for number in range(600):
        book.write(Output(0, "stdout", f"{number}\n", 1))
        if number % 7 == 0:
            book.end(1)
    book.close()
    found = texts("p-1", 1)
    (note,) = notes("p-1", 1)
    assert f"in {600 - len(found)} lines" in note
    assert found[-15:] == [str(number) for number in range(585, 600)]


def test_a_line_is_not_joined_over_what_is_missing():
    events = [Output(0, "stdout", f"<{number}", 1) for number in range(1000)]
    written("p-1", *events, limits=SMALL)
    head, tail = texts("p-1", 1)
    assert head.startswith("<0<1<2")
    assert tail.endswith("<998<999")
    assert notes("p-1", 1)


def test_what_is_larger_than_a_part_is_kept_in_one():
    events = [Output(0, "stdout", letter * 5000 + "\n", 1) for letter in "abc"]
    written("p-1", *events, limits=SMALL)
    assert texts("p-1", 1) == [letter * 5000 for letter in "abc"]


def test_the_oldest_runs_go_when_all_are_too_much():
    limits = LogLimits(head=1000, part=1000, parts=2, block=1, everything=7000)
    for run in range(1, 11):
        written("p-1", Output(0, "stdout", "x" * 700 + "\n", run), limits=limits)
        os.utime(part_path("p-1", run, 0), (run, run))
    there = [kept.run for kept in runs()]
    assert there == list(range(10, 10 - len(there), -1))
    assert 4 <= len(there) <= 9
    assert sum(kept.size for kept in runs()) <= limits.everything


def test_there_are_not_more_runs_than_that():
    limits = LogLimits(runs=5)
    for run in range(1, 11):
        written(f"p-{run}", Output(0, "stdout", "x\n", run), limits=limits)
        os.utime(part_path(f"p-{run}", run, 0), (run, run))
    assert [kept.run for kept in runs()] == [10, 9, 8, 7, 6]
    assert not (log_files.log_root() / "p-1").exists()


def test_a_run_that_goes_on_is_not_removed():
    mine = Logbook("p-mine", SMALL)
    mine.write(Output(0, "stdout", "here\n", 1))
    code = """
        import sys
        from skyward_nb.logs.logbook import Logbook
        from skyward_nb.protocol.events import Output
        book = Logbook("p-other")
        book.write(Output(0, "stdout", "begun\\n", 1))
        book.flush()
        print("ready", flush=True)
        sys.stdin.readline()
        book.write(Output(0, "stdout", "and ended\\n", 1))
        book.close()
    """
    with other(code) as process:
        assert process.stdout.readline() == "ready\n"
        written("p-old", Output(0, "stdout", "old\n", 1))
        log_files.sweep(0, 0)
        assert {kept.pool_id for kept in runs()} == {"p-mine", "p-other"}
        process.communicate("go on\n", timeout=120)
        assert process.returncode == 0
    assert texts("p-other", 1) == ["begun", "and ended"]
    mine.close()
    log_files.sweep(0, 0)
    assert runs() == []


def test_a_folder_that_was_swept_away_is_made_again():
    book = Logbook("p-1")
    book.write(Output(0, "stdout", "one\n", 1))
    book.end(1)
    log_files.sweep(0, 0)
    assert not (log_files.log_root() / "p-1").exists()
    book.write(Output(0, "stdout", "two\n", 2))
    book.close()
    assert (texts("p-1", 2), book.trouble) == (["two"], "")


def other(code):
    """Another process that runs this code."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_kernels_use_the_folder_at_once():
    code = """
        import sys
        from skyward_nb.logs.logbook import Logbook
        from skyward_nb.logs.log_files import LogLimits as Limits
        from skyward_nb.protocol.events import Output
        limits = Limits(head=3000, part=1000, parts=3, block=1, everything=20_000)
        book = Logbook(sys.argv[1] if len(sys.argv) > 1 else "p-%s", limits)
        for run in range(1, 151):
            for number in range(20):
                book.write(Output(0, "stdout", f"{run} {number} " + "x" * 50 + "\\n", run))
            book.end(run)
        assert not book.trouble, book.trouble
        book.close()
    """
    with other(code % "a") as one, other(code % "b") as two:
        assert (one.wait(120), two.wait(120)) == (0, 0)
    there = runs()
    assert 10_000 < sum(kept.size for kept in there) <= 25_000
    for kept in there:
        found = texts(kept.pool_id, kept.run)
        assert [line.split()[:2] for line in found] == [
            [str(kept.run), str(number)] for number in range(20)
        ]


# ── trouble ─────────────────────────────────────────────────────────────────────────────


def test_a_folder_that_cannot_be_made_breaks_nothing(root):
    root.write_text("in the way")
    book = Logbook("p-1", SMALL)
    for run in (1, 2):
        for _ in range(3):
            book.write(Output(0, "stdout", "lost\n", run))
        book.end(run)
    assert "run 1" in book.trouble
    assert str(root) in book.trouble
    assert "SKYWARD_LOG_DIR" in book.trouble
    root.unlink()
    book.write(Output(0, "stdout", "kept\n", 3))
    book.close()
    assert texts("p-1", 3) == ["kept"]


def test_a_home_that_nobody_has_breaks_nothing(monkeypatch):
    monkeypatch.setenv("SKYWARD_LOG_DIR", "~nobody-of-this-name/logs")
    book = Logbook("p-1", SMALL)
    book.write(Output(0, "stdout", "lost\n", 1))
    book.close()
    assert "~nobody-of-this-name/logs" in book.trouble


def test_a_disk_that_is_full_breaks_nothing():
    # A limit on the size of files stands for it: write(2) fails alike, after a part was written.
    code = """
        import resource
        from skyward_nb.logs.logbook import Logbook
        from skyward_nb.protocol.events import Output
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        book = Logbook("p-1")
        for number in range(20_000):
            book.write(Output(0, "stdout", f"line {number}\\n", 1))
        book.end(1)
        book.write(Output(0, "stdout", "short\\n", 2))
        book.close()
        print(book.trouble)
    """
    with other(code) as process:
        said, _ = process.communicate(timeout=120)
    assert said.startswith("%sky logs will lack output of run 1")
    found = texts("p-1", 1)
    assert found == [f"line {number}" for number in range(len(found))]
    assert found
    assert "ends in the middle" in notes("p-1", 1)[0]
    assert texts("p-1", 2) == ["short"]


def test_a_disk_without_room_for_a_header_is_left_without_a_file(root):
    code = """
        import resource
        from skyward_nb.logs.logbook import Logbook
        from skyward_nb.protocol.events import Output
        book = Logbook("p-1")
        for most in (10, 100_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, 100_000))
            book.write(Output(0, "stdout", "line\\n", most))
            book.end(most)
            print(book.trouble)
            book.trouble = ""
        book.close()
    """
    with other(code) as process:
        said, _ = process.communicate(timeout=120)
    first, second = said.splitlines()
    assert first.startswith("%sky logs will lack output of run 10")
    assert second == ""
    assert [path.name for path in root.rglob("*.log*")] == ["100000.log"]
    assert texts("p-1", 100_000) == ["line"]


def test_what_is_wrong_is_said_once_for_each_reason(root, tmp_path):
    book = Logbook("p-1", SMALL)

    def said(run):
        book.write(Output(0, "stdout", "lost\n", run))
        book.end(run)
        trouble, book.trouble = book.trouble, ""
        return trouble

    root.write_text("in the way")
    assert "run 1" in said(1)
    assert [said(2), said(3)] == ["", ""]
    root.unlink()
    root.symlink_to(tmp_path / "nowhere" / "at all")
    assert "run 4" in said(4)
    assert said(5) == ""


def test_a_relative_folder_stays_where_it_was_first(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_LOG_DIR", f"logs-of-{tmp_path.name}")
    monkeypatch.chdir(tmp_path)
    written("p-1", Output(0, "stdout", "one\n", 1))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    written("p-1", Output(0, "stdout", "two\n", 2))
    assert [texts("p-1", run) for run in (1, 2)] == [["one"], ["two"]]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_relative_folder_below_one_that_is_gone_breaks_nothing(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("SKYWARD_LOG_DIR", f"logs-below-{tmp_path.name}")
    book = Logbook("p-1", SMALL)
    book.write(Output(0, "stdout", "lost\n", 1))
    book.close()
    assert f"(logs-below-{tmp_path.name})" in book.trouble
    assert runs() == []


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    path = part_path("p-1", 1, 0)
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    book = Logbook("p-1", SMALL)
    book.write(Output(0, "stdout", "x\n", 1))
    book.close()
    assert book.trouble
    assert target.read_text() == "precious"


# ── reading ─────────────────────────────────────────────────────────────────────────────


def test_a_run_is_read_while_it_goes_on():
    book = Logbook("p-1", SMALL)
    book.write(Output(0, "stdout", "one\nand", 1))
    book.flush()
    assert texts("p-1", 1) == ["one", "and"]
    with part_path("p-1", 1, 0).open("ab") as half:
        half.write(frame(Output(0, "stdout", " two\n", 1))[:-3])
    assert (texts("p-1", 1), notes("p-1", 1)) == (["one", "and"], [])
    book.close()
    (note,) = notes("p-1", 1)
    assert note.startswith("the log on disk ends in the middle")


def test_a_part_that_goes_while_it_is_read_is_read_to_its_end():
    written("p-1", *(Output(0, "stdout", f"{n}\n", 1) for n in range(30)))
    lines = read("p-1", 1)
    first = next(lines)
    part_path("p-1", 1, 0).unlink()
    assert [first.text, *(line.text for line in lines)] == [str(n) for n in range(30)]


def test_cut_anywhere_it_is_read_up_to_there():
    said = [f"line {number}" for number in range(5)]
    written("p-1", *(Output(0, "stdout", f"{line}\n", 1) for line in said))
    path = part_path("p-1", 1, 0)
    whole = path.read_bytes()
    ends = {log_files.HEADER_SIZE}
    for line in said:
        ends.add(max(ends) + len(frame(Output(0, "stdout", f"{line}\n", 1))))
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found = texts("p-1", 1)
        assert found == said[: len(found)]
        assert bool(notes("p-1", 1)) == (end not in ends)


@given(st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_is_read_without_an_error(data):
    shutil.rmtree(log_files.log_root(), ignore_errors=True)
    events = [Output(n % 2, "stdout", f"line {n}\n", 1) for n in range(60)]
    written("p-d", *events, limits=SMALL)
    paths = sorted((log_files.log_root() / "p-d").iterdir())
    path = data.draw(st.sampled_from(paths))
    bytes_there = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(bytes_there) - 1))
    bytes_there[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path.write_bytes(bytes_there)
    for line in read("p-d", 1):
        assert isinstance(line, LogLine)


def test_after_damage_the_next_part_is_read():
    written("p-1", *(Output(0, "stdout", f"{n}\n", 1) for n in range(60)), limits=SMALL)
    head = part_path("p-1", 1, 0)
    good = head.read_bytes()
    head.write_bytes(good[:200] + b"\xff" * 50 + good[250:])
    lines = list(read("p-1", 1))
    at = next(index for index, line in enumerate(lines) if line.stream == "note")
    assert "is damaged after" in lines[at].text
    assert [line.text for line in lines[:at]] == [str(n) for n in range(at)]
    assert lines[-1].text == "59"
    head.write_bytes(b"no log of ours at all")
    assert notes("p-1", 1)[0] == "the log on disk is damaged: it cannot be read"


def test_a_head_that_is_gone_is_told():
    written("p-1", *(Output(0, "stdout", f"{n}\n", 1) for n in range(60)), limits=SMALL)
    part_path("p-1", 1, 0).unlink()
    first, *_, last = read("p-1", 1)
    assert (first.stream, last.text) == ("note", "59")


def test_other_messages_are_passed_over():
    written("p-1", Output(0, "stdout", "a\n", 1))
    with part_path("p-1", 1, 0).open("ab") as file:
        file.write(frame(Phase("busy")) + frame(Output(0, "stdout", "b\n", 1)))
    assert texts("p-1", 1) == ["a", "b"]


def test_what_is_not_there_is_told():
    assert [line.stream for line in read("p-1", 9)] == ["note"]


# ── which run ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def some_runs():
    for when, (pool_id, run) in enumerate([("old-1", 7), ("a-1", 7), ("b-1", 7), ("b-1", 8)]):
        written(pool_id, Output(0, "stdout", "x\n", run))
        os.utime(part_path(pool_id, run, 0), (when, when))


def test_runs_are_listed_newest_first(some_runs, root):
    assert [kept.name for kept in runs()] == ["b-1/8", "b-1/7", "a-1/7", "old-1/7"]
    assert (runs()[0].when, runs()[0].size) == (3, part_path("b-1", 8, 0).stat().st_size)
    (root / "a-1" / "7.log.bak").touch()
    (root / "stray").touch()
    assert len(runs()) == 4


@pytest.mark.parametrize(
    ("words", "pools", "meant"),
    [
        ("7", ["a-1", "b-1"], "b-1/7"),
        ("7", ["a-1"], "a-1/7"),
        ("old-1/7", ["a-1"], "old-1/7"),
        ("", ["b-1", "a-1"], "b-1/8"),
        (" b-1/7 ", [], "b-1/7"),
    ],
)
def test_a_run_is_found_by_what_people_write(some_runs, words, pools, meant):
    assert find(words, pools).name == meant


@pytest.mark.parametrize(
    ("words", "pools", "says"),
    [
        ("9", ["a-1"], "run=9: its output is not on disk; there is a-1/7, b-1/8"),
        ("seven", ["a-1"], "write a number"),
        ("../b-1/7", [], "its output is not on disk"),
        ("", ["c-1"], "the output of these pools is not"),
    ],
)
def test_a_run_that_is_not_there_is_told_with_those_that_are(some_runs, words, pools, says):
    with pytest.raises(OptionError, match="there is") as told:
        find(words, pools)
    assert says in told.value.message


def test_where_there_is_nothing_at_all_it_says_so():
    with pytest.raises(OptionError, match="there is no output of any run"):
        find("1", ["a-1"])


def test_a_folder_below_a_home_that_nobody_has_holds_no_runs(monkeypatch):
    monkeypatch.setenv("SKYWARD_LOG_DIR", "~nobody-has-this-home/logs")
    assert log_files.runs() == []


def test_a_book_that_is_closed_as_runs_end_in_other_threads(monkeypatch):
    book = Logbook("pool")
    for run in range(3):
        book.write(Output(0, "stdout", "x\n", run))
    ended, close = threading.Thread(target=book.end, args=(9,)), os.close

    def slowly(descriptor):
        if not ended.ident:
            ended.start()
        time.sleep(0.05)
        close(descriptor)

    monkeypatch.setattr(os, "close", slowly)
    book.close()
    ended.join(60)
    assert [texts("pool", run) for run in range(3)] == [["x"]] * 3
