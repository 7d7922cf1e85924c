r"""The terminal: text in chunks → lines that were ended, rows on the screen.

What is expected is what a terminal shows that is wide and high enough, but for what the module says
it does differently.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward_nb.view import terminal
from skyward_nb.view.terminal import HEIGHT, LONGEST_LINE, Screen, feed, is_plain, seen


def show(*chunks):
    """Chunks fed one after the other, by a caller that holds lines; those, and the screen."""
    held, screen = [], Screen()

    def take_back():
        return held.pop() if held else None

    for chunk in chunks:
        screen, lines = feed(screen, chunk, take_back)
        held += lines
    return held, screen


def told(*chunks):
    """All that can be seen after the chunks, one row below the other."""
    held, screen = show(*chunks)
    return [*held, *seen(screen)]


RED, OFF = "\x1b[31m", "\x1b[0m"

LINES = [
    ("nothing", [""], [], [""]),
    ("lines", ["a\nb\n"], ["a", "b"], [""]),
    ("a line in pieces", ["a", "b", "c\nd"], ["abc"], ["d"]),
    ("windows", ["a\r\nb\r", "\nc"], ["a", "b"], ["c"]),
    ("blanks at the end stay", ["a  \r\nb  "], ["a  "], ["b  "]),
    ("carriage return", ["10%\r20%\r30%\n"], ["30%"], [""]),
    ("typed over in part", ["abcdef\rXY\n"], ["XYcdef"], [""]),
    ("typed over in pieces", ["abcdef", "\rXY", "Z"], [], ["XYZdef"]),
    ("typed over by blanks", ["abcdef\r      \rxy   \n"], ["xy"], [""]),
    ("backspace", ["abc\b\bX\n"], ["aXc"], [""]),
    ("backspace at the begin", ["\b\ba"], [], ["a"]),
    ("tab stays", ["tab\tkept\n"], ["tab\tkept"], [""]),
    ("erased to the right", ["abcdef\x1b[3D\x1b[K\n"], ["abc"], [""]),
    ("erased row", ["abcdef\x1b[2Kx\n"], ["      x"], [""]),
    ("erased at the end, where nothing is", ["abc  \x1b[K\n"], ["abc  "], [""]),
    ("to a column", ["abc\x1b[2Gx\x1b[6Gy\n"], ["axc  y"], [""]),
    ("left and right", ["abc\x1b[2Dx\x1b[2Cy\n"], ["axc y"], [""]),
    ("moved only", ["abc\x1b[9C\n"], ["abc"], [""]),
    ("no further right than is kept", ["\x1b[9999999C\n"], [""], [""]),
    ("title", ["\x1b]0;a title\x07a\x1b]2;b\x1b\\b\n"], ["ab"], [""]),
    ("link", ["\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\\n"], ["text"], [""]),
    ("title that never ends", ["a\x1b]0;never\nb\n"], ["a", "b"], [""]),
    ("control characters", ["a\0b\x07c\x7fd\x85e\x9bf\n"], ["abcdef"], [""]),
    ("what is not known", ["a\x1b[?25lb\x1b[5nc\x1b(Bd\x1b=e\x1b[>4;2mf\n"], ["abcdef"], [""]),
    ("escapes that are broken", ["a\x1b[3é\x1b\x1b[b\x1b[1\nc"], ["aé"], ["c"]),
    ("half of a letter", ["a\ud83db\n"], ["a\ufffdb"], [""]),
    ("up and down", ["a\nb\x1b[Ax\n"], ["ax"], ["b"]),
    ("up to what the caller holds", ["a\nb\n", "c", "\x1b[2Ax\n"], ["ax"], ["b", "c"]),
    ("up too far", ["a\n\x1b[9Ax"], [], ["x", ""]),
    ("up by another spelling", ["a\nb\x1b[Fx\x1bMy\n"], ["xy"], ["b"]),
    ("down to what is there", ["a\nb\nc\x1b[2A\x1b[Bx\x1b[Ey"], ["a", "bx"], ["y"]),
    ("no further down", ["a\x1b[5B\x1b[5Eb"], [], ["b"]),
    ("erased below", ["a\nb\nc\x1b[2A\x1b[J\n"], ["a"], [""]),
]


@pytest.mark.parametrize(
    ("chunks", "lines", "rows"), [c[1:] for c in LINES], ids=[c[0] for c in LINES]
)
def test_a_terminal_shows(chunks, lines, rows):
    held, screen = show(*chunks)
    assert (held, list(screen.rows)) == (lines, rows)


STYLES = [
    ("on and off", "\x1b[31mred\x1b[0m x", f"{RED}red{OFF} x"),
    (
        "as many ways to say it",
        "\x1b[1;31mx\x1b[m\x1b[0;01;031my\x1b[39;22mz",
        f"\x1b[1;31mxy{OFF}z",
    ),
    ("twice the same", "\x1b[31ma\x1b[31mb\x1b[m", f"{RED}ab{OFF}"),
    ("no letters", "\x1b[31m\x1b[1m\x1b[0mx\x1b[4m", "x"),
    ("one after the other", "\x1b[31ma\x1b[32mb", f"{RED}a\x1b[0;32mb{OFF}"),
    ("blanks that are seen", "\x1b[41ma\x1b[m b", f"\x1b[41ma{OFF} b"),
    ("marks", "\x1b[9;7;4;3;2;1mx", f"\x1b[1;2;3;4;7;9mx{OFF}"),
    ("marks off", "\x1b[1;2;3;4;7;9m\x1b[22;23;24;27;29mx", "x"),
    ("bright", "\x1b[91;102mx", f"\x1b[91;102mx{OFF}"),
    ("256", "\x1b[38;5;208mx\x1b[48;5;9my", f"\x1b[38;5;208mx\x1b[0;38;5;208;48;5;9my{OFF}"),
    ("true colours", "\x1b[48;2;1;2;3mx", f"\x1b[48;2;1;2;3mx{OFF}"),
    ("colour of lines under letters", "\x1b[58;5;1;31mx", f"{RED}x{OFF}"),
    ("no such colour", "\x1b[38;5;256mx\x1b[38;2;1mx\x1b[38mx\x1b[38;7;1mx", f"xxx\x1b[1mx{OFF}"),
    ("what is not known", "\x1b[5;8;10;73mx", "x"),
    ("too long", f"\x1b[{'1;' * 200}31mx", "x"),
    ("typed over", "\x1b[31mabc\r\x1b[32mX\x1b[m", f"\x1b[32mX\x1b[0;31mbc{OFF}"),
    ("typed over by the same", "\x1b[31mab\rab", f"{RED}ab{OFF}"),
    ("erased", "\x1b[31mabc\x1b[41m\x1b[2D\x1b[K", f"{RED}a{OFF}"),
    ("as grep says it", "\x1b[01;31m\x1b[Kfoo\x1b[m\x1b[Kbar", f"\x1b[1;31mfoo{OFF}bar"),
]


@pytest.mark.parametrize(("text", "row"), [c[1:] for c in STYLES], ids=[c[0] for c in STYLES])
def test_styles_have_one_form(text, row):
    assert show(text)[1].rows == (row,)
    assert show(*text)[1].rows == (row,)
    assert show(row)[1].rows == (row,)


def test_a_style_that_stays_on_goes_on_in_the_next_line():
    assert show("\x1b[31ma\n\nb", "c\nd\x1b[m")[0] == [f"{RED}a{OFF}", "", f"{RED}bc{OFF}"]


def test_a_line_taken_back_keeps_its_colours():
    assert told("\x1b[31mabc\x1b[m\n", "\x1b[A\x1b[2GX\n") == [f"{RED}a{OFF}X{RED}c{OFF}"]


# ── what programs print ─────────────────────────────────────────────────────────────────

# tqdm within tqdm within tqdm, with a file that is a pipe.
TQDM = (
    "\ra                    0\n\rb                    0\x1b[A\n\n\rc                    0\x1b[A\x1b[A"
    "\n\n\rc####################1\x1b[A\x1b[A\n\n\r                      \x1b[A\x1b[A"
    "\n\rb##########          1\x1b[A\n\n\rc                    0\x1b[A\x1b[A\n\n"
    "\rc####################1\x1b[A\x1b[A",
    "\n\n\r                      \x1b[A\x1b[A\n\rb####################2\x1b[A"
    "\n\r                      \x1b[A\ra##########          1\n\rb                    0\x1b[A",
    "\ra####################2\n\r                      \x1b[A\ra####################2\nend\n",
)


def test_bars_within_bars_stay_where_they_are():
    assert told(TQDM[0]) == [
        "a                    0",
        "b##########          1",
        "c####################1",
    ]
    assert told(*TQDM[:2]) == ["a##########          1", "b                    0"]
    assert told(*TQDM) == ["a####################2", "end"]


def test_bars_are_as_they_were_at_every_flush():
    for cut in range(len(TQDM[0])):
        assert told(TQDM[0][:cut], TQDM[0][cut:]) == told(TQDM[0])


def test_a_line_between_bars_is_above_them():
    # tqdm.write
    text = "\ra  0\n\rb  0\x1b[A\r    \r\n\r    \r\x1b[Ahello\n\ra  0\n\rb  0\x1b[A"
    assert told(text) == ["hello", "a  0", "b  0"]


# rich.progress with a console that is forced to be a terminal.
RICH = (
    "\x1b[?25l\r\x1b[2K\x1b[1;34mload\x1b[0m \x1b[90m━━\x1b[0m 0"
    "\r\x1b[2K\x1b[1;34mload\x1b[0m  \x1b[90m━━\x1b[0m 0\n\x1b[1;34mtrain\x1b[0m \x1b[90m━━\x1b[0m 0"
    "\r\x1b[2K\x1b[1A\x1b[2Kstep \x1b[1;31m0\x1b[0m"
    "\n\x1b[1;34mload\x1b[0m  \x1b[90m━━\x1b[0m 0\n\x1b[1;34mtrain\x1b[0m \x1b[90m━━\x1b[0m 0"
    "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1;34mload\x1b[0m  \x1b[90m━━\x1b[0m 2"
    "\n\x1b[1;34mtrain\x1b[0m \x1b[90m━━\x1b[0m 4\n\x1b[?25hend\n"
)


@pytest.mark.parametrize("chunks", [(RICH,), tuple(RICH), RICH.partition("2K\x1b[1;34mload")])
def test_bars_of_rich(chunks):
    assert told(*chunks) == [
        f"step \x1b[1;31m0{OFF}",
        f"\x1b[1;34mload{OFF}  \x1b[90m━━{OFF} 2",
        f"\x1b[1;34mtrain{OFF} \x1b[90m━━{OFF} 4",
        "end",
    ]


# ── how much is kept ────────────────────────────────────────────────────────────────────


def test_a_long_line_in_pieces_is_cut_with_a_true_count():
    screen = show(*(["x" * 10_000] * 10))[1]
    assert screen.rows == ("x" * LONGEST_LINE,)
    assert told(*(["x" * 10_000] * 10), "\n") == ["x" * LONGEST_LINE + " … 98,000 more characters"]


@pytest.mark.parametrize("text", ["x" * 3000, f"{RED}{'x' * 3000}{OFF}", "世" * 3000])
def test_a_long_line_tells_how_much_is_left_out(text):
    short = text.replace("x" * 3000, "x" * 2000).replace("世" * 3000, "世" * 2000)
    assert told(text + "\nnext") == [f"{short} … 1,000 more characters", "next"]
    assert told(*text, "\nnext") == [f"{short} … 1,000 more characters", "next"]


def test_a_line_just_as_long_as_is_kept_is_whole():
    line = "x" * LONGEST_LINE
    assert told(line + "\n" + line) == [line, line]


def test_a_long_line_taken_back_is_cut_once():
    first = f"{'x' * LONGEST_LINE} … 500 more characters"
    assert told("x" * 2500 + "\n", "\x1b[Ay", "\n") == ["y" + first[1:]]
    assert told("x" * 2500 + "\n", "\x1b[A\x1b[2Ky", "\n") == ["y"]


def test_long_lines_typed_over_do_not_grow():
    bars = ["\r" + "x" * 3000] * 5
    assert told(*bars) == ["x" * LONGEST_LINE + " … 1,000 more characters"]


@pytest.mark.parametrize("begin", ["\x1b]0;", "\x1b["])
def test_an_escape_that_goes_on_and_on_is_not_kept(begin):
    _, screen = show(begin, *["1" * 10_000] * 10)
    assert len(screen.pending) < 5000
    assert len(screen.rows[0]) <= LONGEST_LINE


def test_the_screen_is_of_bounded_height():
    text = "\n".join(map(str, range(1000)))
    held, screen = show(text, "\x1b[99999A")
    assert len(screen.rows) == HEIGHT
    assert len(held) == 1000 - HEIGHT


# ── chunks ──────────────────────────────────────────────────────────────────────────────

WORDS = [
    *("abc", "x", " ", "   ", "hello world", "世界", "e\u0301", "🤖", "\t", "1", "m"),
    *("\n", "\n", "\r", "\r\n", "\b", "\v", "\x18", "\ud83d", "\x85", "\0"),
    *(f"\x1b[{move}" for move in ("A", "2A", "B", "C", "D", "E", "F", "3G", "15G")),
    *(f"\x1b[{part}" for part in ("K", "1K", "2K", "J", "2J", "3;3H", "999;1H")),
    *(f"\x1b[{style}m" for style in ("31", "", "44", "4", "1", "0;33;7", "38:2::1:2:3", ">4;2")),
    *("\x1bM", "\x1b7", "\x1bc", "\x1b(B", "\x1b]0;t\x07", "\x1b]8;;u\x1b\\"),
    *("\x1b[", "\x1b", "\x1b]", "\x1b[3"),
]


@settings(deadline=None, max_examples=400)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=30),
    cuts=st.lists(st.integers(0, 150), max_size=10),
    longest=st.sampled_from([6, 12, 2000]),
    height=st.sampled_from([2, 4, 200]),
)
def test_where_text_is_cut_does_not_matter(words, cuts, longest, height):
    text = "".join(words)
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "LONGEST_LINE", longest)
        patch.setattr(terminal, "HEIGHT", height)
        whole = show(text)
        assert show(*(text[i:j] for i, j in itertools.pairwise(at))) == whole
        assert show(*text) == whole


@given(st.text(), st.text())
def test_any_text_is_taken(one, other):
    held, screen = show(one, other)
    assert show(one + other) == (held, screen)
    for line in (*held, *screen.rows):
        line.encode()
        assert "\n" not in line
        assert "\r" not in line


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_lines_shown_again_are_the_same(words):
    for line in show("".join(words))[0]:
        assert show(line + "\n")[0] == [line]


@given(
    st.lists(st.sampled_from(["\r", "\r", "\n", "a", "bc ", " ", "x" * LONGEST_LINE]), max_size=30)
)
def test_what_is_typed_over_at_once_reads_as_when_it_is_typed_letter_by_letter(parts):
    text = "".join(parts)
    assert told(text) == told(*parts)


@given(st.text(st.characters(exclude_characters="\n"), max_size=40))
def test_a_plain_line_is_seen_as_it_is(line):
    if is_plain(line):
        assert told(line) == [line] * bool(line)


def test_a_line_of_which_a_part_is_kept_is_not_plain():
    assert is_plain("x" * LONGEST_LINE)
    assert not is_plain("x" * (LONGEST_LINE + 1))
