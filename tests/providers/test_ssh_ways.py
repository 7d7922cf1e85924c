"""How values come and go over the line to a host, with a real sshd on loopback."""

import asyncio
import os
import threading

import asyncssh
import pytest
from providers.lines import Loop, stream_to
from sshds import lacks, sshd

from skyward_nb.compat import asyncssh_private
from skyward_nb.providers.ssh import extra_connections, ssh_line
from skyward_nb.store.value_messages import ANSWERS
from skyward_nb.store.value_stream import StreamLost, ValueStream

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
MUCH = 20_000_000
LIMIT = 20_000
"""Milliseconds to wait at most for what is sure to come."""


def opened(far, listener):
    near = far.do(far.line.way(listener.getsockname()))
    there, _ = listener.accept()
    there.settimeout(20)
    return near, there


def say(near, data):
    view = memoryview(data)
    while view:
        view = view[near.send(view) :]
        assert near.wait_to_send(LIMIT)


def take(near, size):
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = near.receive(data[filled:])
        if count is None:
            assert near.wait_to_receive(LIMIT)
        elif not count:
            break
        else:
            filled += count
    return bytes(data[:filled])


def poured(near, size, into=None):
    parts = []
    near.pour(size, into or (lambda view: parts.append(bytes(view))))
    while not near.has_poured():
        assert near.wait_to_pour(LIMIT)
    return b"".join(parts)


def say_there(there, data):
    """All of it, as long as it goes on: what `sendall` may take is bounded as a whole."""
    view = memoryview(data)
    while view:
        view = view[there.send(view) :]


def heard(there, size):
    parts = []
    while size and (data := there.recv(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def both_ways(near, there, much=MUCH):
    """Much goes both ways at once: some of it is taken, and the rest poured."""
    down, up = os.urandom(much), os.urandom(much)
    found = {}
    threads = [
        threading.Thread(target=say, args=(near, up), daemon=True),
        threading.Thread(target=say_there, args=(there, down), daemon=True),
        threading.Thread(target=lambda: found.update(up=heard(there, much)), daemon=True),
    ]
    for each in threads:
        each.start()
    first = take(near, 1_000_001)
    found["down"] = first + poured(near, much - len(first))
    for each in threads:
        each.join(60)
    assert found == {"down": down, "up": up}


@pytest.fixture
def counted(monkeypatch):
    """How many packets were sealed here rather than by asyncssh, and how often keys were exchanged."""
    counts = {"sealed": 0, "keys": 0}
    gcm, connection = asyncssh_private.GcmSealer, asyncssh.SSHClientConnection
    seal, exchange = gcm._seal, connection.send_newkeys

    def counting_seal(self, *given):
        counts["sealed"] += 1
        return seal(self, *given)

    def counting_exchange(*given):
        counts["keys"] += 1
        return exchange(*given)

    monkeypatch.setattr(gcm, "_seal", counting_seal)
    monkeypatch.setattr(connection, "send_newkeys", counting_exchange)
    return counts


def test_much_goes_both_ways_at_once(far, listener, counted):
    near, there = opened(far, listener)
    both_ways(near, there)
    # What has to wait for the host is left to asyncssh.
    assert counted["sealed"] * 32768 > MUCH // 2
    near.close()
    there.close()


@pytest.mark.parametrize(
    ("limit", "much"),
    [
        # OpenSSH reckons the packet to be sent in bytes, and all before it in blocks of 16: of 1M it
        # changes keys at each packet of 64 kB, of 2M at each MB.
        ("1M", 2_000_000),
        ("2M", 8_000_000),
    ],
)
def test_while_keys_change_it_goes_on(tmp_path, listener, counted, limit, much):
    with sshd(tmp_path / "sshd", RekeyLimit=limit) as server:
        far = Loop(server)
        near, there = opened(far, listener)
        both_ways(near, there, much)
        assert counted["sealed"]
        assert counted["keys"] > 3, "the keys did not change"
        near.close()
        there.close()
        far.close()


@pytest.mark.parametrize("cipher", ["chacha20-poly1305@openssh.com", "aes256-ctr"])
def test_with_another_cipher_asyncssh_does_it(tmp_path, listener, counted, cipher):
    with sshd(tmp_path / "sshd", Ciphers=cipher) as server:
        far = Loop(server)
        near, there = opened(far, listener)
        both_ways(near, there, 8_000_000)
        assert not counted["sealed"]
        near.close()
        there.close()
        far.close()


@pytest.mark.parametrize("lacking", ["_send_seq", "_rekey_bytes"])
def test_with_an_asyncssh_of_other_ways_it_does_it(far, listener, counted, monkeypatch, lacking):
    needed = {*asyncssh_private.OF_CONNECTIONS, f"{lacking}_of_another_time"}
    monkeypatch.setattr(asyncssh_private, "OF_CONNECTIONS", needed)
    near, there = opened(far, listener)
    both_ways(near, there, 8_000_000)
    assert not counted["sealed"]
    near.close()
    there.close()


def test_several_ways_and_words_between(far, listener):
    ways = [opened(far, listener) for _ in range(8)]
    words, there = stream_to(far, listener)
    threads = [threading.Thread(target=both_ways, args=each) for each in ways]
    for each in threads:
        each.start()
    for number in range(50):
        word = b"%d" % number
        words.sendall(word)
        assert there.recv(100) == word
        there.sendall(word)
        assert words.recv(100) == word
    for each in threads:
        each.join(120)
    for near, end in (*ways, (words, there)):
        near.close()
        end.close()


def test_a_small_word_overtakes_what_is_large(far, listener):
    """With nobody to take the bulk in, what is urgent still comes at once."""
    bulk = [opened(far, listener) for _ in range(4)]
    words, there = stream_to(far, listener)

    def say_much(near):
        try:
            for _ in range(25):
                say(near, bytes(4_000_000))
        except OSError:
            return

    saying = [threading.Thread(target=say_much, args=(near,)) for near, _ in bulk]
    for each in saying:
        each.start()
    for word in (b"stop", b"now"):
        words.sendall(word)
        assert there.recv(100) == word
    for near, other in bulk:
        near.close()
        other.close()
    for each in saying:
        each.join(20)
        assert not each.is_alive()
    words.close()
    there.close()


def test_a_question_does_not_wait_until_a_value_has_gone(far, listener):
    """The value ends when all questions have come."""
    near, there = opened(far, listener)
    other, end = opened(far, listener)
    all_came = threading.Event()

    def take_all():
        while there.recv(1 << 20):
            """More comes until all questions have."""

    def say_on():
        while not all_came.is_set():
            say(near, bytes(4_000_000))
        near.close()

    taking = threading.Thread(target=take_all)
    saying = threading.Thread(target=say_on)
    for each in (taking, saying):
        each.start()
    for _ in range(20):
        say(other, b"?")
        assert heard(end, 1) == b"?"
    all_came.set()
    for each in (saying, taking):
        each.join(60)
        assert not each.is_alive()
    for each in (there, other, end):
        each.close()


@pytest.mark.extensive
def test_nothing_is_read_that_nobody_takes_in(far, listener):
    near, there = opened(far, listener)
    there.setblocking(False)
    sent = quiet = 0
    while quiet < 10:
        before = sent
        try:
            while sent < 400_000_000:
                sent += there.send(bytes(1 << 16))
        except BlockingIOError:
            """It takes no more for now."""
        assert sent < 400_000_000, "all was taken in"
        far.do(asyncio.sleep(0.05))
        quiet = quiet + 1 if sent == before else 0
    there.close()
    assert len(take(near, sent + 1)) == sent
    near.close()


@pytest.mark.parametrize("who", ["near", "there"])
def test_a_side_that_hangs_up_is_heard_of_on_the_other(far, listener, who):
    near, there = opened(far, listener)
    if who == "near":
        near.close()
        assert there.recv(1) == b""
    else:
        there.close()
        assert near.wait_to_receive(LIMIT)
        assert near.receive(memoryview(bytearray(1))) == 0
        near.close()
    there.close()


def test_what_came_before_the_line_was_cut_is_still_heard(far, listener, server):
    near, there = opened(far, listener)
    there.sendall(b"last words")
    assert near.wait_to_receive(LIMIT)
    server.cut()
    assert take(near, 100) == b"last words"
    with pytest.raises(StreamLost):
        while near.send(memoryview(bytes(100_000))):
            near.wait_to_send(LIMIT)
    near.close()
    there.close()


def test_who_waits_for_more_than_comes_is_told(far, listener):
    near, there = opened(far, listener)
    there.sendall(b"part")
    there.close()
    with pytest.raises(StreamLost):
        poured(near, 10)
    near.close()


@pytest.mark.parametrize("came_before", [True, False])
def test_what_goes_wrong_where_it_is_poured_is_raised(far, listener, came_before):
    near, there = opened(far, listener)
    if came_before:
        there.sendall(bytes(100_000))
        assert near.wait_to_receive(LIMIT)

    def full(view):
        raise OSError(28, "there is no room")

    with pytest.raises(OSError, match="no room"):
        if not came_before:
            threading.Timer(0.1, _say_all, (there, bytes(100_000))).start()
        poured(near, 100_000, full)
    near.close()
    there.close()


def test_nothing_is_poured_after_the_end(far, listener):
    near, there = opened(far, listener)
    parts = []
    near.pour(100_000, lambda view: parts.append(bytes(view)))
    there.sendall(b"before")
    while not parts:
        near.wait_to_pour(10)
    near.close()
    try:
        there.sendall(b"after" * 1000)
    except OSError:
        """It has been hung up on already."""
    far.do(asyncio.sleep(0.2))
    assert b"".join(parts) == b"before"
    there.close()


def _say_all(there, data):
    try:
        there.sendall(data)
    except OSError:
        return


def test_a_way_that_nobody_waits_for_any_more_is_closed(far, listener):
    async def given_up():
        opening = asyncio.ensure_future(far.line.way(listener.getsockname()))
        for _ in range(3):  # by then it is asked for, and not answered
            await asyncio.sleep(0)
        assert far.line._connection._channels
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)

    far.do(far.line.connect())
    far.do(given_up())
    there, _ = listener.accept()
    there.settimeout(20)
    assert there.recv(1) == b""
    there.close()


# ── connections beside the first ────────────────────────────────────────────────────────


def many(far, listener, count):
    """So many ways at once, as a value has them that goes over several."""

    async def open_all():
        path = listener.getsockname()
        return await asyncio.gather(*(far.line.way(path) for _ in range(count)))

    far.do(far.line.way(listener.getsockname())).close()
    listener.accept()[0].close()
    ways = far.do(open_all())
    ends = [listener.accept()[0] for _ in ways]
    return ways, ends


@pytest.fixture
def is_far(monkeypatch):
    """The host is far, and its connections beside the first are waited for, however long logins take."""
    monkeypatch.setattr(extra_connections, "_FAR", 0.0)
    monkeypatch.setattr(extra_connections, "_PATIENCE", 60.0)
    for limit in ("_AGAIN", "_QUICK"):
        monkeypatch.setattr(ssh_line, limit, 20.0)


def all_work(ways, ends):
    """Each way leads to one of these ends."""
    for number, way in enumerate(ways):
        say(way, bytes([number]))
    for end in ends:
        end.settimeout(20)
    assert sorted(heard(end, 1)[0] for end in ends) == list(range(len(ways)))
    for each in (*ways, *ends):
        each.close()


def test_to_a_host_that_is_near_there_is_one_connection(far, listener, server, monkeypatch):
    monkeypatch.setattr(extra_connections, "_FAR", 30.0)
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 1


def test_to_a_host_that_is_far_there_are_four(far, listener, server, is_far):
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 4
    # Those who come later have the places of those who went, and the same connections.
    all_work(*many(far, listener, 40))
    assert server.logged("Accepted publickey") == 4


def test_few_ways_share_the_first_connection(far, listener, server, is_far):
    all_work(*many(far, listener, 3))
    assert server.logged("Accepted publickey") == 1


def test_a_connection_that_cannot_be_had_is_done_without(far, listener, server, is_far):
    far.do(far.line.connect())
    authorized = server.authorized.read_text()
    server.authorized.write_text("")
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 1
    server.authorized.write_text(authorized)


def test_connections_that_were_lost_are_made_anew(far, listener, server, is_far):
    ways, ends = many(far, listener, 16)
    server.cut()
    for way in ways:
        assert not take(way, 1)
    for each in (*ways, *ends):
        each.close()
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 8


def test_where_another_machine_answers_there_is_one_connection(
    far, listener, server, is_far, monkeypatch
):
    monkeypatch.setattr(ssh_line, "_mark", lambda path: "echo $$")
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 4
    all_work(*many(far, listener, 16))
    assert server.logged("Accepted publickey") == 4


class FarGate:
    """What lanes need of a gate."""

    def __init__(self):
        self.connection = self

    def is_closed(self):
        return False

    def abort(self):
        pass

    async def wait_closed(self):
        pass


def seated(dial, during=None):
    """The gates of eight ways, the last four of which have a connection of their own or not."""
    first = FarGate()

    async def take():
        made = extra_connections.ExtraConnections(first, dial)
        made.answered(1.0)
        taking = [asyncio.ensure_future(made.gate(made.take(), "/a/s")) for _ in range(8)]
        if during is not None:
            await asyncio.sleep(0)
            await during(made)
        found = [await each for each in taking]
        await made.close()
        return [gate is first for gate in found]

    return asyncio.run(take())


def test_a_connection_that_takes_too_long_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(extra_connections, "_PATIENCE", 0.05)
    assert seated(lambda _: asyncio.sleep(60)) == [True] * 8


def test_lines_that_are_given_up_meanwhile_end_no_wait():
    assert (
        seated(lambda _: asyncio.sleep(60), extra_connections.ExtraConnections.close) == [True] * 8
    )


def test_whatever_hinders_a_connection_the_first_one_is_there():
    async def fails(path):
        raise ValueError(path)

    assert seated(fails) == [True] * 8


def test_each_connection_beside_is_made_once():
    made = []

    async def dial(path):
        made.append(path)
        return FarGate()

    assert seated(dial) == [True] * 4 + [False] * 4
    assert made == ["/a/s"]


# ── what goes wrong here ────────────────────────────────────────────────────────────────


def test_what_goes_wrong_on_the_loop_ends_the_way(far, listener, monkeypatch):
    near, there = opened(far, listener)

    def fails(self, channel, view):
        raise RuntimeError("not as it was")

    monkeypatch.setattr(asyncssh_private.GcmSealer, "send", fails)
    far.loop.call_soon_threadsafe(far.loop.set_exception_handler, lambda *_: None)
    near.send(memoryview(b"x"))
    assert near.wait_to_receive(LIMIT)
    with pytest.raises(StreamLost):
        near.send(memoryview(b"x"))
    near.close()
    there.close()


def test_who_is_interrupted_while_it_is_poured_gets_no_more_of_it(far, listener):
    near, there = opened(far, listener)
    stream = ValueStream(near, ANSWERS)
    came = []
    interrupted = threading.Event()

    def tick():
        if came:
            raise KeyboardInterrupt

    def say_half_and_half():
        _say_all(there, bytes(MUCH // 2))
        assert interrupted.wait(60)
        _say_all(there, bytes(MUCH // 2))

    stream.tick = tick
    saying = threading.Thread(target=say_half_and_half)
    saying.start()
    with pytest.raises(KeyboardInterrupt):
        stream.pour(0, MUCH, memoryview(bytearray(1)), lambda at, data: came.append(len(data)))
    before = len(came)
    interrupted.set()
    saying.join(20)
    assert len(came) == before and sum(came) < MUCH
    there.close()
