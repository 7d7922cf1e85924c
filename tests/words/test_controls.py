"""Text of ranks that a terminal would obey."""

import pytest

from skyward_nb.protocol.events import RankDone, RankPhase
from skyward_nb.protocol.message_parts import Failure, Frame, Packed
from skyward_nb.words.controls import shown, with_texts_shown

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
    assert shown(text) == harmless


@pytest.mark.parametrize(
    "text", ["", "plain", "zwei\nZeilen\tü", "dos\r\n", "\x1b[1;31mred\x1b[0m", "\x1b[38;5;3m"]
)
def test_lines_and_colours_stay(text):
    assert shown(text) is text or shown(text) == text


def test_every_text_of_an_event_is_shown_and_values_are_left_alone():
    evil, well = "\x1b[2J", "\\x1b[2J"
    packed = Packed("d", 3, b"\x1b[2")
    failure = Failure(
        type_name=evil, message=evil, value=packed, at=Frame(evil, 1, evil), traceback=(evil, "x")
    )
    done = with_texts_shown(RankDone(run=1, rank=0, failure=failure, pulled={evil: packed}))
    made = done.failure
    assert (made.type_name, made.message, made.traceback) == (well, well, (well, "x"))
    assert (made.at, made.value) == (Frame(well, 1, well), packed)
    assert done.pulled == {well: packed}
    plain = RankPhase(0, "taking in", 1)
    assert with_texts_shown(plain) is plain
