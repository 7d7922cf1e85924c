"""Lines of several logs, and the line below them: in terminals, files, and where nobody reads."""

import gc
import io
import os
import sys
import threading

import pytest
from show.terminals import looked_at

from skyward_nb.show.console import Console, clipped


class Log:
    """Whoever prints."""


def test_the_line_below_is_wiped_before_lines_and_written_anew_under_them(monkeypatch):
    console, log = Console(), Log()
    with looked_at(monkeypatch) as terminal:
        assert console.is_live
        console.show(log, [], "one of three, at length")
        assert terminal.rows() == ["one of three, at length"]
        console.show(log, [("stdout", "first"), ("stderr", "second")], "two of three")
        assert terminal.rows() == ["first", "second", "two of three"]
        console.show(log, [], "three of three")
        assert terminal.rows() == ["first", "second", "three of three"]
        before = terminal.raw()
        console.show(log, [], "three of three")
        assert terminal.raw() == before
        console.show(log, [("stdout", "last")])
        assert terminal.rows() == ["first", "second", "last"]


def test_it_takes_one_row_however_much_there_is_to_say(monkeypatch):
    console, log = Console(), Log()
    with looked_at(monkeypatch, columns=20) as terminal:
        console.show(log, [], "ab\n\x1b[31mcd\x1b[0m\x1b[2J" + "漢" * 30)
        (row,) = terminal.rows()
        assert row == "ab cd [2J漢漢漢漢…"
        console.show(log, [], "short")
        assert terminal.rows() == ["short"]


def test_a_terminal_that_does_not_know_its_size_has_80_columns(monkeypatch):
    console, log = Console(), Log()
    with looked_at(monkeypatch, columns=0) as terminal:
        console.show(log, [], "x" * 100)
        assert terminal.rows() == ["x" * 78 + "…"]


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("漢字", 4, "漢字"),
        ("漢字", 3, "漢…"),
        ("漢字", 2, "…"),
        ("a漢字", 3, "a…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("", 0, ""),
    ],
)
def test_clipped(text, most, kept):
    assert clipped(text, most) == kept


def test_several_logs_share_the_line_and_one_that_is_gone_has_no_part_in_it(monkeypatch):
    console, first, second, third = Console(), Log(), Log(), Log()
    with looked_at(monkeypatch) as terminal:
        console.show(first, [], "a 1")
        console.show(second, [], "b 1")
        console.show(third, [], "c 1")
        assert terminal.rows() == ["3 runs: a 1 | b 1 | c 1"]
        console.show(second, [("stdout", "b ends")])
        assert terminal.rows() == ["b ends", "2 runs: a 1 | c 1"]
        del third
        gc.collect()
        console.show(first, [], "a 2")
        assert terminal.rows() == ["b ends", "a 2"]


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("CI", "1"), ("TERM", "dumb")])
def test_a_terminal_where_no_line_can_be_seen_to_change_gets_plain_lines(monkeypatch, name, value):
    console, log = Console(), Log()
    with looked_at(monkeypatch) as terminal:
        monkeypatch.setenv(name, value)
        assert not console.is_live
        console.show(log, [("stdout", "\x1b[31mred\x1b[0m")], "going on")
        assert terminal.raw() == "red\n"


def test_colours_are_for_terminals_where_they_are_wanted(monkeypatch):
    console, log = Console(), Log()
    with looked_at(monkeypatch) as terminal:
        console.show(log, [("stdout", "\x1b[31mred\x1b[0m")])
        assert terminal.raw() == "\x1b[31mred\x1b[0m\n"
        monkeypatch.setenv("NO_COLOR", "1")
        console.show(log, [("stdout", "\x1b[31mred\x1b[0m")], "goes on")
        assert terminal.rows()[1:] == ["red", "goes on"]


def test_stdout_may_be_a_file_while_a_person_looks_at_stderr(monkeypatch, tmp_path):
    console, log = Console(), Log()
    with looked_at(monkeypatch) as terminal, open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        console.show(log, [], "going")
        console.show(log, [("stdout", "\x1b[31mred\x1b[0m"), ("stderr", "warned")], "still going")
        assert terminal.rows() == ["warned", "still going"]
        assert (tmp_path / "out").read_text() == "red\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_letters_that_an_encoding_lacks_become_others(monkeypatch, encoding):
    kept = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(kept, encoding))
    Console().show(Log(), [("stdout", "a · b … ✓ ▁█ 漢 é")])
    text = kept.getvalue().decode(encoding)
    assert (
        text
        == {
            "ascii": "a - b ... ok 1# ? ?\n",
            "latin-1": "a · b ... ok 1# ? é\n",
            "cp1252": "a · b … ok 1# ? é\n",
            "utf-8": "a · b … ✓ ▁█ 漢 é\n",
        }[encoding]
    )


def broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    # Unbuffered, so that nothing is left for whoever closes it.
    return io.TextIOWrapper(io.FileIO(writer, "w"), "utf-8", write_through=True)


def full_disk():
    return io.TextIOWrapper(io.FileIO("/dev/full", "w"), "utf-8", write_through=True)


def closed_file():
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("make", [broken_pipe, full_disk, closed_file, lambda: None])
def test_where_nothing_can_be_written_the_other_stream_is(monkeypatch, make):
    err = io.StringIO()
    out = make()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        console = Console()
        console.show(Log(), [("stdout", "a"), ("stderr", "b"), ("stdout", "c"), ("stderr", "d")])
        patch.setattr(sys, "stderr", out)
        console.show(Log(), [("stderr", "e")], "going on")
        assert not console.is_live
    assert err.getvalue() == "b\nd\n"
    if out is not None:
        out.close()


def test_threads_print_whole_lines(monkeypatch, tmp_path):
    console = Console()
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)

        def print_many(name):
            log = Log()
            for number in range(200):
                console.show(log, [("stdout", f"{name} {number} {name * 50}")], f"{name} goes on")

        threads = [threading.Thread(target=print_many, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = (tmp_path / "out").read_text().splitlines()
    for name in "abcd":
        own = [line for line in lines if line[0] == name]
        assert own == [f"{name} {number} {name * 50}" for number in range(200)]
