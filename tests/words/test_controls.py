"""Text of ranks that a terminal would obey."""

import struct

import pytest

from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.pickling.payload import pack_plain
from skyward_nb.pickling.pickle_scan import NotPlain
from skyward_nb.pool.link import Link
from skyward_nb.protocol.events import Display, RankDone, RankPhase
from skyward_nb.protocol.message_parts import Client, Failure, Frame, Packed
from skyward_nb.reports.results import RankResults
from skyward_nb.reports.run_profiles import profiles_of
from skyward_nb.store.blobs import digest_of
from skyward_nb.words.controls import spelt, with_texts_spelt
from skyward_nb.words.errors import HostNotReady, StartError

ATTACKS = {
    "\x1b]52;c;aGk=\x07": "\\x1b]52;c;aGk=\\x07",  # sets the clipboard
    "\x1b]0;title\x1b\\": "\\x1b]0;title\\x1b\\",
    "\x1b[2J\x1b[1A": "\\x1b[2J\\x1b[1A",  # clears, goes up
    "\x9b2J": "\\x9b2J",
    "fine\rover it": "fine\\rover it",
    "a\x08b\x00": "a\\x08b\\x00",
}


@pytest.mark.parametrize(("text", "harmless"), ATTACKS.items())
def test_what_a_terminal_would_obey_is_spelt(text, harmless):
    assert spelt(text) == harmless


@pytest.mark.parametrize(
    "text", ["", "plain", "zwei\nZeilen\tü", "dos\r\n", "\x1b[1;31mred\x1b[0m", "\x1b[38;5;3m"]
)
def test_lines_and_colours_stay(text):
    assert spelt(text) is text or spelt(text) == text


def test_every_text_of_an_event_is_shown_and_values_are_left_alone():
    evil, well = "\x1b[2J", "\\x1b[2J"
    packed = Packed("d", 3, b"\x1b[2")
    failure = Failure(
        type_name=evil, message=evil, value=packed, at=Frame(evil, 1, evil), traceback=(evil, "x")
    )
    done = with_texts_spelt(RankDone(run=1, rank=0, failure=failure, pulled={evil: packed}))
    made = done.failure
    assert (made.type_name, made.message, made.traceback) == (well, well, (well, "x"))
    assert (made.at, made.value) == (Frame(well, 1, well), packed)
    assert done.pulled == {well: packed}
    plain = RankPhase(0, "taking in", 1)
    assert with_texts_spelt(plain) is plain


EVIL, WELL = "\x1b]0;t\x07", "\\x1b]0;t\\x07"


def test_errors_results_and_displays_show_no_such_text_of_ranks():
    assert NotPlain(f"it names {EVIL}").args == (f"it names {WELL}",)
    assert HostNotReady("h", "no", last_words(f"{EVIL}\nx\n")).message == f"h: no\n{WELL}\nx"
    assert str(StartError("p", "no", EVIL)).count(WELL) == 1

    class Table:
        def __repr__(self):
            return EVIL

    assert repr(RankResults({0: Table(), 1: [Table()]})) == f"[0] {WELL}\n[1] [{WELL}]"


def test_a_display_has_its_text_and_its_kinds_shown():
    link = Link("gpu1", Client(key="c", host="h", pid=1, since=0.0), 1.0)
    made = link._harmless(Display(0, {"text/plain": EVIL, EVIL: "x", "text/html": EVIL}))
    assert made.data == {"text/plain": WELL, WELL: "x", "text/html": EVIL}


def test_a_profile_has_its_texts_shown():
    parts = {"trouble": EVIL, "collectives": [{"name": EVIL, "count": 1, "seconds": 1.0}]}
    data = b"".join(map(bytes, pack_plain("p", parts).parts))
    done = RankDone(run=1, rank=0, profile=Packed(digest_of([data]), len(data), data))
    profile = profiles_of({0: done}, None)[0]
    assert (profile.trouble, profile.collectives[0].name) == (WELL, WELL)
    damaged = struct.pack("<IQ", 1, 4) + bytes(52) + b"\x80\x05h\x07."
    done = RankDone(run=1, rank=0, profile=Packed(digest_of([damaged]), len(damaged), damaged))
    assert profiles_of({0: done}, None)[0].trouble
