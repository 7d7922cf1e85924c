"""Frames: whole messages out of any pieces, and nothing out of what is none."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward_nb.protocol.commands import Interrupt, Kill, Stop
from skyward_nb.protocol.events import Output, Phase, RankDone
from skyward_nb.protocol.frames import FrameError, command_frames, event_frames, frame

EVENTS = [
    Output(3, "stdout", "héllo\n" * 100),
    Phase("importing"),
    RankDone(run=1, rank=2, assigned=("x",)),
    Output(0, "stderr", ""),
]


@given(st.lists(st.integers(1, 40), max_size=200))
def test_messages_come_whole_from_any_pieces(sizes):
    stream = b"".join(map(frame, EVENTS))
    frames, found, at = event_frames(), [], 0
    for size in [*sizes, len(stream)]:
        found += frames.feed(stream[at : at + size])
        at += size
    assert found == EVENTS


def test_cut_at_every_byte():
    stream = b"".join(map(frame, EVENTS))
    for cut in range(len(stream)):
        frames = event_frames()
        assert frames.feed(stream[:cut]) + frames.feed(stream[cut:]) == EVENTS


def test_a_frame_is_passed_on_as_it_came():
    commands = [Interrupt(1, (0, 1)), Kill((2,), 1), Stop()]
    both = list(command_frames().feed_both(b"".join(map(frame, commands))))
    assert [message for message, _ in both] == commands
    assert [whole for _, whole in both] == list(map(frame, commands))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        frame(Phase("x"))[:4] + b"\xc1" * (len(frame(Phase("x"))) - 4),
        (lambda body: len(body).to_bytes(4, "big") + body)(
            msgspec.msgpack.encode({"type": "Output", "rank": "one"})
        ),
        frame(Stop()),
    ],
)
def test_what_is_no_message_is_refused(garbage):
    with pytest.raises(FrameError):
        event_frames().feed(garbage)
