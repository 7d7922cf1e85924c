"""Whether a machine is taken back: asked of a server that answers as metadata do, or worse."""

import asyncio
import time
from datetime import datetime
from types import SimpleNamespace

import pytest

from skyward_nb.node import spot_notices
from skyward_nb.protocol.commands import MachineReclaimed

NOTICE = '{"action": "terminate", "time": "2026-11-22T10:00:00Z"}'


class Metadata:
    """Answers what is asked: (status, body) one after the other, "" for nothing; then as it should."""

    def __init__(self, tokens, actions):
        self.tokens, self.actions = list(tokens), list(actions)
        self.shown = []
        """Tokens that came with questions."""

    async def __call__(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("PUT"):
            answer = self.tokens.pop(0) if self.tokens else (200, "a-token")
        else:
            self.shown.append(head.partition("metadata-token: ")[2].split("\r\n")[0])
            answer = self.actions.pop(0) if self.actions else (200, NOTICE)
        if answer:
            writer.write("HTTP/1.0 {} Word\r\nServer: EC2ws\r\n\r\n{}".format(*answer).encode())
        writer.close()


@pytest.fixture
def watched(monkeypatch):
    """What is told, and the server that was asked."""

    async def watch(metadata):
        server = await asyncio.start_server(metadata, "127.0.0.1", 0)
        monkeypatch.setattr(spot_notices, "_HOST", "127.0.0.1")
        monkeypatch.setattr(spot_notices, "_PORT", server.sockets[0].getsockname()[1])
        monkeypatch.setattr(spot_notices, "_EVERY", 0.01)
        # Else one who is held up asks again, although the answer is there.
        monkeypatch.setattr(spot_notices, "_LIMIT", 60)
        told = []
        async with server, asyncio.timeout(60):
            await spot_notices.watch_notices(told.append)
        return told

    return lambda metadata: asyncio.run(watch(metadata))


@pytest.mark.parametrize(
    ("tokens", "actions", "shown"),
    [
        ([], [], ["a-token"]),
        ([], [(404, ""), (404, "")], ["a-token"] * 3),
        ([""], [], ["a-token"]),
        ([(503, "<html>a page</html>"), (200, "the-next")], [], ["the-next"]),
        ([(200, "old"), (200, "new")], [(401, "")], ["old", "new"]),
        ([(200, "old"), (200, "new")], [(400, "")], ["old", "new"]),
        ([], [""], ["a-token"] * 2),
        ([], [(200, "{")], ["a-token"] * 2),
    ],
)
def test_a_notice_is_seen_whatever_was_answered_before(watched, tokens, actions, shown):
    metadata = Metadata(tokens, actions)
    assert watched(metadata) == [MachineReclaimed("terminate", "2026-11-22T10:00:00Z")]
    assert metadata.shown == shown


def test_a_notice_is_seen_within_five_seconds():
    """Just after a look there may be one, and the next look takes as long as it may."""
    assert spot_notices._EVERY + spot_notices._LIMIT < 5


@pytest.mark.parametrize(
    ("said", "after", "left"),
    [("signal:120", None, 120), ("signal:20:pod", None, 20), ("signal:30:25", 25.0, 45), ("signal:9:0", 0.0, 0)],
)  # fmt: skip
def test_how_an_agent_is_told_of_its_end_by_a_signal_or_a_timer(monkeypatch, said, after, left):
    """Ten seconds after its start; with a timer the end is known, whenever the signal comes."""
    monkeypatch.setenv(spot_notices.VARIABLE, said)
    assert spot_notices.comes_after() == after
    monkeypatch.setattr(
        spot_notices, "time", SimpleNamespace(monotonic=lambda: spot_notices._BEGAN + 10)
    )
    before = int(time.time())
    at = datetime.fromisoformat(spot_notices.signalled().at).timestamp()
    assert before <= at - left <= time.time()
