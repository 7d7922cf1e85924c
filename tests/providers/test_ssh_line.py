"""What goes over the line to a host: scripts, files, streams; with a real sshd on loopback."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
import threading
import time

import pytest
from providers.lines import Loop, stream_to
from sshds import lacks, sshd
from waiting import until

from skyward_nb.bootstrap.remote_shell import NotOffered, ShellGone
from skyward_nb.providers.ssh import script_session, ssh_line, stream
from skyward_nb.providers.ssh.dialer import LOGIN_LIMIT

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
SSHD = {"MaxSessions": 1}
"""One session at a time must do."""


# ── scripts ─────────────────────────────────────────────────────────────────────────────


def test_a_script_and_its_stdin(far):
    ran = far.run("echo out; echo err >&2; cat; exit 7", data=b"in\0put\nlast")
    assert (ran.code, ran.out, ran.err) == (7, b"out\nin\0put\nlast", "err\n")


@pytest.mark.parametrize(
    "script",
    [
        "printf '%s' 'a\\b\\\\c'",
        "x='$HOME `date` \"quoted\" ! % %s %b'; printf '%s\\n' \"$x\"",
        "cat <<'end'\n  two\n\tlines \\n\nend\n",
        "  echo  spaces  ",
        "printf '%b' 'a\\tb\\0101'",
        "echo 'ümläut ✓'",
    ],
)
def test_a_script_comes_as_it_is(far, script):
    import subprocess

    here = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
    assert far.run(script).out == here.stdout


def test_files_of_scripts_are_nobody_elses(far, tmp_path):
    far.run(f"echo x > {tmp_path}/made")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o600


def test_no_script_is_in_a_list_of_processes(far):
    ran = far.run(
        "secret=hunter2; tr '\\0' ' ' < /proc/$$/cmdline; tr '\\0' ' ' < /proc/$PPID/cmdline"
    )
    assert b"/bin/sh" in ran.out
    assert b"hunter2" not in ran.out


def test_lines_of_stderr_are_heard_as_they_come(far, tmp_path):
    os.mkfifo(tmp_path / "go")
    lines = []

    def heard(line):
        lines.append(line)
        if line == "first":
            (tmp_path / "go").write_text("on\n")

    ran = far.run(f"echo first >&2; cat {tmp_path}/go; printf second >&2", heard=heard)
    assert lines == ["first", "second"]
    assert (ran.out, ran.err) == (b"on\n", "first\nsecond")


def test_scripts_wait_for_one_another(far):
    async def several():
        return await asyncio.gather(*(far.line.run(f"sleep 0.05; echo {i}") for i in range(6)))

    assert [ran.out for ran in far.do(several())] == [b"%d\n" % i for i in range(6)]


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
def test_a_script_that_takes_too_long(far, tmp_path, deaf):
    """It is not waited for: it would not end before this test does."""
    end = tmp_path / "end"
    script = f"{deaf}while [ ! -e {end} ]; do sleep 0.1; done"
    try:
        with pytest.raises(TimeoutError):
            far.run(script, limit=1.0)
        assert far.run("echo on").out == b"on\n"
    finally:
        end.touch()


def test_a_script_that_nobody_waits_for_any_more(far, tmp_path):
    end, began = tmp_path / "end", threading.Event()
    script = f"trap '' TERM; echo on >&2; while [ ! -e {end} ]; do sleep 0.1; done"
    running = asyncio.run_coroutine_threadsafe(
        far.line.run(script, heard=lambda _: began.set()), far.loop
    )
    try:
        assert began.wait(60)
        running.cancel()
        assert far.run("echo on").out == b"on\n"
    finally:
        end.touch()


def test_a_script_that_is_let_go_as_it_begins_leaves_no_session_behind(
    far, server, listener, monkeypatch
):
    """At whatever step: the one session that there may be is free again."""
    monkeypatch.setattr(script_session, "_END_LIMIT", 60.0)  # the server may be held up

    async def let_go_after(steps, work):
        task = asyncio.ensure_future(work)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        (left,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(left, socket.socket):
            left.close()

    far.run("true")
    for steps in range(1, 12):
        far.do(let_go_after(steps, far.line.run("true")))
        assert far.run("echo on").out == b"on\n"
        far.do(let_go_after(steps, far.line.stream(listener.getsockname())))
    near, there = stream_to(far, listener)
    near.close()
    there.close()
    assert server.logged("Accepted publickey") == 1


def test_a_host_that_refuses_us_is_not_asked_again_and_again(far, server, listener, monkeypatch):
    before = server.logged("Connection from")
    far.run("true")
    until(lambda: server.logged("Connection from") == before + 1)
    known = server.authorized.read_text()
    server.authorized.write_text("")
    near, there = stream_to(far, listener)
    server.cut()
    assert near.recv(1) == b""
    near.close()
    there.close()
    before = server.logged("Connection from")
    for _ in range(5):
        with pytest.raises(OSError, match="does not let"):
            far.do(far.line.stream(listener.getsockname()))
    assert server.logged("Connection from") == before + 1
    server.authorized.write_text(known)
    monkeypatch.setattr(far.line, "_refused_until", 0.0)
    near = far.do(far.line.stream(listener.getsockname()))
    near.close()


def test_a_script_that_does_not_read_its_stdin(far):
    ran = far.run("exit 3", data=bytes(20_000_000))
    assert ran.code == 3
    assert far.run("echo on").out == b"on\n"


def test_much_output(far):
    assert len(far.run("head -c 30000000 /dev/zero").out) == 30_000_000


@pytest.mark.parametrize("shell", ["bash", "dash", "tcsh", "csh", "zsh", "fish", "busybox sh"])
def test_the_words_for_login_shells_of_other_kinds(shell):
    import shutil
    import subprocess

    from skyward_nb.bootstrap.remote_shell import LINE, spoken

    words = shell.split()
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]} here")
    script = "echo 'it is'\ncat\n"
    ran = subprocess.run(
        [*words, "-c", LINE], input=spoken(script) + b"me", capture_output=True, check=True
    )
    assert ran.stdout == b"it is\nme"


def test_a_line_that_is_lost_while_a_script_runs(far, server):
    began = threading.Event()
    script = far.line.run("echo on >&2; sleep 30", heard=lambda _: began.set())
    running = asyncio.run_coroutine_threadsafe(script, far.loop)
    assert began.wait(60)
    server.cut()
    with pytest.raises(ShellGone):
        running.result(20)
    # What comes next makes a new connection.
    assert far.run("echo on").out == b"on\n"


def test_a_host_that_is_not_there(far, server):
    server.stop()
    with pytest.raises(ShellGone, match="nothing listens"):
        far.run("true")


# ── files ───────────────────────────────────────────────────────────────────────────────


def test_a_file_is_sent(far, tmp_path):
    data = os.urandom(3_000_000)
    told = []
    target = tmp_path / "it's here"
    far.do(far.line.send(str(target), [data[:10], data[10:]], mode=0o700, told=told.append))
    assert target.read_bytes() == data
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert told[-1] == len(data) + 3
    far.do(far.line.send(str(target), []))
    assert target.read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["it's here"]


def test_a_file_that_cannot_be_written(far, tmp_path):
    with pytest.raises(OSError) as raised:
        far.do(far.line.send(str(tmp_path / "none" / "x"), [b"data"]))
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(OSError) as raised:
        far.do(far.line.send("/proc/version/x", [b"data"]))


def test_a_file_of_which_only_a_part_came_is_not_there(far, server, tmp_path):
    def parts():
        yield bytes(5_000_000)
        server.cut()
        yield bytes(5_000_000)

    with pytest.raises(ShellGone):
        far.do(far.line.send(str(tmp_path / "part"), parts()))
    assert not (tmp_path / "part").exists()


# ── streams ─────────────────────────────────────────────────────────────────────────────


def read_all(end):
    parts = []
    while data := end.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)


def test_one_side_may_have_said_all_and_hear_on(far, listener):
    near, there = stream_to(far, listener)
    near.sendall(b"question")
    near.shutdown(socket.SHUT_WR)
    assert read_all(there) == b"question"
    there.sendall(b"answer")
    there.close()
    assert read_all(near) == b"answer"
    near.close()


def test_a_side_that_hangs_up_is_heard_of_on_the_other(far, listener):
    near, there = stream_to(far, listener)
    near.close()
    assert there.recv(1) == b""
    there.close()
    near, there = stream_to(far, listener)
    there.close()
    assert near.recv(1) == b""
    near.close()


def test_nothing_is_read_that_nobody_takes_in(far, listener):
    near, there = stream_to(far, listener)
    there.setblocking(False)
    sent = 0

    def say_much():
        nonlocal sent
        try:
            while sent < 200_000_000:
                sent += there.send(bytes(1 << 16))
        except BlockingIOError:
            return True
        return False

    quiet = 0
    while quiet < 10:
        before = sent
        assert say_much(), "all was taken in"
        far.do(asyncio.sleep(0.05))
        quiet = quiet + 1 if sent == before else 0
    assert sent < 50_000_000
    there.setblocking(True)
    there.shutdown(socket.SHUT_WR)
    assert len(read_all(near)) == sent
    near.close()
    there.close()


def test_what_came_before_the_line_was_cut_is_still_heard(far, listener, server):
    near, there = stream_to(far, listener)
    there.sendall(b"last words")
    assert near.recv(10, socket.MSG_PEEK) == b"last words"
    server.cut()
    assert read_all(near) == b"last words"
    near.close()
    there.close()


def test_nobody_takes_it_there(far, tmp_path):
    with pytest.raises(ConnectionRefusedError):
        far.do(far.line.stream(str(tmp_path / "none")))


def test_a_stream_after_the_line_was_lost_has_a_new_one(far, listener, server):
    near, there = stream_to(far, listener)
    server.cut()
    assert near.recv(1) == b""
    near.close()
    there.close()
    near, there = stream_to(far, listener)
    near.sendall(b"on")
    assert there.recv(2) == b"on"
    near.close()
    there.close()
    assert server.logged("Accepted publickey") == 2


WAY = """
import os, pathlib, socket, sys, threading
tried = pathlib.Path(sys.argv[3])
if not tried.exists():
    while os.read(0, 65536):
        "until it is given up"
    sys.exit()
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


def test_a_host_that_takes_long_to_log_in_to_is_given_longer(
    server, listener, tmp_path, monkeypatch
):
    """It lets nobody in in the time of the first attempt."""
    (tmp_path / "way.py").write_text(WAY)
    server.say(f"ProxyCommand '{sys.executable}' {tmp_path}/way.py %h %p {tmp_path}/tried")
    monkeypatch.setattr(ssh_line, "_AGAIN", 1.5)
    far, given = Loop(server), []
    dial = far.line._dialer.dial

    async def noted(host, limit=LOGIN_LIMIT, *tries):
        given.append((limit, *tries))
        # The second one is to come to its end on a busy machine, too.
        return await dial(host, limit if len(given) == 1 else LOGIN_LIMIT, *tries)

    monkeypatch.setattr(far.line._dialer, "dial", noted)
    try:
        with pytest.raises(OSError, match="did not answer"):
            stream_to(far, listener)
        (tmp_path / "tried").touch()
        near, there = stream_to(far, listener)
        near.close()
        there.close()
        assert given == [(3.0, 2), (6.0, 2)]
        assert server.logged("Accepted publickey") == 1
    finally:
        far.close()


@pytest.mark.extensive
def test_a_host_that_takes_long_over_logins_is_reached_again(far, listener, server, monkeypatch):
    """A login is given twice the time of the one before; here it gets more, and that is noted."""
    dial = far.line._dialer.dial
    given, took = [], []

    async def dial_at_leisure(host, limit=LOGIN_LIMIT, *tries):
        given.append(limit)
        began = time.monotonic()
        connection = await dial(host, LOGIN_LIMIT, *tries)
        took.append(time.monotonic() - began)
        return connection

    monkeypatch.setattr(ssh_line, "_AGAIN", 0.001)
    monkeypatch.setattr(far.line._dialer, "dial", dial_at_leisure)
    far.run("true")
    for _ in range(3):
        near, there = stream_to(far, listener)
        server.cut()
        assert near.recv(1) == b""
        near.close()
        there.close()
    assert len(given) == 3
    for limit, before in zip(given[1:], took[:-1], strict=True):
        assert limit >= min(2 * before, LOGIN_LIMIT) > 0.001


@pytest.mark.extensive
def test_a_login_is_given_longer_each_time(server, tmp_path, listener, monkeypatch):
    monkeypatch.setattr(ssh_line, "_AGAIN", 0.001)
    far = Loop(server)
    tries = 0
    try:
        while tries < 20:
            tries += 1
            try:
                near = far.do(far.line.stream(listener.getsockname()))
            except OSError as error:
                assert "did not answer" in str(error)
            else:
                near.close()
                break
    finally:
        far.close()
    assert 1 < tries < 20


def test_frames_have_beats_between_them(far, listener, monkeypatch):
    from skyward_nb.protocol.commands import Heartbeat, QueryStatus, Stop
    from skyward_nb.protocol.frames import command_frames, frame
    from skyward_nb.providers.ssh import stream

    monkeypatch.setattr(stream, "_BEAT", 0.05)
    near, there = stream_to(far, listener)
    frames = command_frames()
    found = []

    def hear(until):
        while sum(map(until, found)) < 1:
            found.extend(frames.feed(there.recv(1 << 16)))

    # None before the first word, which says who it is.
    far.do(asyncio.sleep(0.2))
    whole = frame(Stop())
    near.sendall(frame(QueryStatus()) + whole[:3])
    hear(lambda each: isinstance(each, QueryStatus))
    far.do(asyncio.sleep(0.2))
    near.sendall(whole[3:])
    hear(lambda each: isinstance(each, Stop))
    hear(lambda each: isinstance(each, Heartbeat))
    assert [type(each) for each in found[:3]] == [QueryStatus, Stop, Heartbeat]
    near.close()
    there.close()


def test_the_first_beat_comes_with_the_first_frame(far, listener, monkeypatch):
    """Who is cut off a moment later is missed, too."""
    from skyward_nb.protocol.commands import Heartbeat, QueryStatus
    from skyward_nb.protocol.frames import command_frames, frame

    monkeypatch.setattr(stream, "_BEAT", 1000)
    near, there = stream_to(far, listener)
    near.sendall(frame(QueryStatus()))
    frames = command_frames()
    found = []
    while len(found) < 2:
        found.extend(frames.feed(there.recv(1 << 16)))
    assert [type(each) for each in found] == [QueryStatus, Heartbeat]
    near.close()
    there.close()


# ── what is offered there ───────────────────────────────────────────────────────────────


async def echo(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def talked(line, serve, say):
    """What `say` gives, in a thread of its own, of a port there that is served here; and the port."""
    async with line.offer(serve) as port:
        return await asyncio.to_thread(say, port), port


def test_a_port_there_is_served_here_and_then_no_more(far):
    data = os.urandom(5_000_000)

    def say(port):
        with socket.create_connection(("127.0.0.1", port)) as there:

            def give():
                there.sendall(data)
                there.shutdown(socket.SHUT_WR)

            giving = threading.Thread(target=give)
            giving.start()
            with there.makefile("rb") as file:
                found = file.read()
            giving.join()
            return found

    found, port = far.do(talked(far.line, echo, say))
    assert found == data
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_who_is_served_is_hung_up_on_at_the_end(far):
    began, ended = threading.Event(), threading.Event()

    async def wait(reader, writer):
        began.set()
        try:
            await reader.read()
        finally:
            ended.set()

    def say(port):
        there = socket.create_connection(("127.0.0.1", port))
        assert began.wait(20)
        return there

    there, _ = far.do(talked(far.line, wait, say))
    assert ended.wait(20)
    with there:
        assert there.recv(1) == b""


def test_who_takes_nothing_holds_nobody_up(far):
    async def pour(reader, writer):
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()

    def say(port):
        with socket.create_connection(("127.0.0.1", port)) as there:
            assert there.recv(1)
            return [far.run("echo well").out for _ in range(3)]

    said, _ = far.do(talked(far.line, pour, say))
    assert said == [b"well\n"] * 3


@pytest.mark.parametrize("forwards", ["no", "local"])
def test_an_sshd_that_offers_nothing_says_so(tmp_path, forwards):
    with sshd(tmp_path / "other", AllowTcpForwarding=forwards) as server:
        far = Loop(server)
        try:
            with pytest.raises(NotOffered, match="AllowTcpForwarding"):
                far.do(talked(far.line, echo, lambda _port: None))
            assert far.run("echo well").out == b"well\n"
        finally:
            far.close()


def test_a_line_that_is_cut_while_something_is_offered(far, server):
    def say(_port):
        server.cut()
        with contextlib.suppress(ShellGone):
            far.run("echo noticed")
        return far.run("echo well").out

    assert far.do(talked(far.line, echo, say))[0] == b"well\n"


class SlowConnection:
    """A connection that something comes over."""

    def __init__(self):
        self._transport = self
        self.came = []

    def set_write_buffer_limits(self, high, low):
        pass

    def data_received(self, data, datatype=None):
        self.came.append(data)


@pytest.mark.parametrize("comes", [True, False])
def test_an_answer_is_waited_for_as_long_as_something_comes(comes, monkeypatch):
    monkeypatch.setattr(stream, "_LATE", 0.5)

    async def wait():
        connection = SlowConnection()
        gate = stream.BulkGate(connection)
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(gate.patiently(asyncio.wait_for(answer, 60)))
        for _ in range(40):
            await asyncio.sleep(0.05)
            if comes:
                connection.data_received(b"x")
        answer.cancelled() or answer.set_result("there")
        assert len(connection.came) == 40 * comes
        return await waiting

    if comes:
        assert asyncio.run(wait()) == "there"
    else:
        with pytest.raises(TimeoutError, match="no answer"):
            asyncio.run(wait())
