"""A line made of commands, and pools whose agents are children of keepers: over this machine's own shell."""

import array
import asyncio
import fcntl
import gc
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from leaks import leaves_nothing
from pools import follow, request, values
from providers.exec_engine import PLAIN, Engine
from waiting import until

from skyward_nb.bootstrap.remote_shell import NotOffered, ShellGone
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Output, Phase
from skyward_nb.providers.far import exec_line, host_setup, relay, script_loop
from skyward_nb.providers.far.exec_line import ExecLine, here
from skyward_nb.providers.far.keeper import first, prelude
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.spec import PoolSpec

SLEEP = shutil.which("sleep")

# ── scripts and streams ─────────────────────────────────────────────────────────────────


def test_a_script_gets_its_data_and_says_how_it_ended():
    heard = []
    line = ExecLine("n0", list, prelude="x='a \"b\"'")
    ran = asyncio.run(
        line.run('printf %s "$x"; cat; echo one >&2; exit 3', data=b"\0data", heard=heard.append)
    )
    assert (ran.code, ran.out, ran.err) == (3, b'a "b"\0data', "one\n")
    assert heard == ["one"]


def complaints(work):
    """What asyncio says of this that nobody asked for."""
    said = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
        await work()
        gc.collect()

    asyncio.run(main())
    gc.collect()
    return said


def test_a_port_whose_program_ends_before_it_is_given_leaves_no_word_of_asyncios(
    monkeypatch, no_leaks
):
    line = ExecLine("n0", lambda _: ["/bin/true"])
    start = line._start

    async def ended(*words):
        process = await start(*words)
        pipe = process.stdin.get_extra_info("pipe")
        if not pipe.closed:  # as where the loop has seen its end already
            broken = select.poll()
            broken.register(pipe, 0)
            broken.poll()  # until nobody can read it any more, while the loop stands still
        return process

    async def offered():
        with pytest.raises(NotOffered):
            async with line.offer(lambda *_: None):
                """Not reached."""

    monkeypatch.setattr(line, "_start", ended)
    assert complaints(offered) == []


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_script_that_leaves_its_data_to_another_leaves_no_word_of_asyncios(
    size, tmp_path, no_leaks
):
    go, gone = tmp_path / "go", tmp_path / "gone"
    # It is over, and its stdin is not: another process has that open until it may end.
    held = (
        f"exec 3<&0; (while [ ! -e {go} ]; do sleep 0.01; done; touch {gone}) <&3 3<&- "
        ">/dev/null 2>&1 & exec 3<&- 0</dev/null; sleep 0.2 & exit 0"
    )

    async def ran():
        line = here()
        assert (await line.run(held, data=bytes(size))).code == 0
        go.touch()
        await asyncio.to_thread(until, gone.exists)
        await asyncio.to_thread(until, lambda: not script_loop._closing)
        await line.close()

    assert complaints(ran) == []


def test_a_command_that_does_not_reach_the_machine_is_a_lost_line():
    refused = ["sh", "-c", "echo 'srun: error: Invalid job id' >&2; exit 1"]
    for argv, why in ((refused, "Invalid job id"), (["no-such-program"], "no program no-such")):
        line = ExecLine("n0", lambda words, argv=argv: argv)
        with pytest.raises(ShellGone, match=f"n0: .*{why}"):
            asyncio.run(line.run("echo here"))


def test_a_script_that_takes_too_long_is_ended_with_what_it_started(tmp_path, no_leaks):
    async def run():
        """The clock jumps ahead once all of it runs."""
        loop = asyncio.get_running_loop()
        clock = loop.time

        def jump(_line):
            loop.time = lambda: clock() + 600

        script = f"sleep 600 & echo $! >{tmp_path}/pid; echo on >&2; wait"
        await here().run(script, limit=600, heard=jump)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not psutil.pid_exists(pid))


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    line = here()
    told = []
    asyncio.run(line.send(str(tmp_path / "sent"), [b"a" * 300_000, b"b"], told=told.append))
    assert (tmp_path / "sent").read_bytes() == b"a" * 300_000 + b"b"
    assert told[-1] == 300_001 + len(b"end")
    with pytest.raises(OSError, match="sent"):
        asyncio.run(line.send(str(tmp_path / "nowhere" / "sent"), [b"a"]))


def test_a_file_that_cannot_be_read_on_is_not_there(tmp_path):
    def parts():
        yield b"a"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(asyncio.wait_for(here().send(str(tmp_path / "sent"), parts()), 30))
    assert not (tmp_path / "sent").exists()


def test_a_stream_that_nobody_answers_leaves_no_command(monkeypatch, no_leaks):
    monkeypatch.setattr(exec_line, "_ANSWER_LIMIT", 0.2)

    async def talk():
        line = ExecLine("n0", lambda words: ["sleep", "600"])
        with pytest.raises(TimeoutError, match="did not answer"):
            await line.stream("/x/s")
        # While the loop goes on: from 3.12 on it is the loop that hears of a child's end.
        await asyncio.to_thread(until, lambda: {*psutil.Process().children()} <= before)

    before = {*psutil.Process().children()}
    asyncio.run(talk())


def test_a_machine_that_waits_for_others_hears_something(monkeypatch):
    said = []

    class Waiting(ExecLine):
        async def run(self, script, **_):
            said.append(script)

    async def choose(spec, lines, tell):
        while len(said) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return [], {}

    async def none(*_):
        return []

    monkeypatch.setattr(host_setup, "choose", choose)
    monkeypatch.setattr(host_setup, "_readied", none)
    line = Waiting("n0", list, first="true")
    line.number, line.beat = 1, 0.01
    asyncio.run(host_setup.made_ready(PoolSpec(), [line], lambda _: None))
    assert said[:2] == [":", ":"]
    assert here().beat == 0


def test_a_machine_is_waited_for_by_its_first_script_alone(tmp_path):
    line = ExecLine(
        "n0", list, first=f"echo waited >>{tmp_path}/log; made=yes", prelude='x="$made"'
    )
    assert asyncio.run(line.run('echo "$x"')).out == b"yes\n"
    assert asyncio.run(line.run('echo "$x"')).out == b"\n"
    assert (tmp_path / "log").read_text() == "waited\n"
    never = ExecLine("n0", list, first=f"echo 'it was not started' >&2; exit {exec_line.NOT_READY}")
    with pytest.raises(ShellGone, match=r"^n0: it was not started$"):
        asyncio.run(never.run("echo on"))


def test_what_its_command_adds_to_the_reason_is_not_taken_for_it(tmp_path):
    """As srun and kubectl do, after the words from there."""
    ended = 'status=$?; echo "task 0: Exited with exit code $status" >&2; exit $status'
    line = ExecLine(
        "n0",
        lambda words: ["sh", "-c", f'"$@"; {ended}', "srun", *words],
        first=first(str(tmp_path / "none"), 0),
        noise=["Exited with exit code"],
    )
    with pytest.raises(ShellGone, match=r"^n0: its keeper was not started in time$"):
        asyncio.run(line.run("echo on"))
    broken = ExecLine(
        "n0",
        lambda words: ["sh", "-c", f"(echo 'no such node' >&2; exit 1); {ended}"],
        noise=["Exited with exit code"],
    )

    async def opened():
        try:
            await broken.stream("/none")
        finally:
            await broken.close()

    with pytest.raises(OSError, match="no such node"):
        asyncio.run(opened())


def test_where_scripts_run_in_what_is_not_there_yet_it_is_waited_for_beside_it(tmp_path):
    """As in a container: its folder is the one here, and is there once the wait is over."""
    inside = tmp_path / "container"
    line = ExecLine(
        "n0",
        lambda words: ["env", "-C", inside, *words],
        first=f"mkdir {inside}",
        waits_by=lambda words: ["env", "-C", tmp_path, *words],
    )
    for _ in range(2):
        assert asyncio.run(line.run("pwd")).out == f"{inside}\n".encode()
    late = first(str(tmp_path / "none"), 0, why=": it's late")
    never = ExecLine("n0", list, first=late, waits_by=list)
    with pytest.raises(ShellGone, match=r"^n0: its keeper was not started in time: it's late$"):
        asyncio.run(never.run("echo on"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who gives a folder to another user")
@pytest.mark.parametrize("kind", ["theirs", "a link"])
def test_a_folder_that_another_user_made_first_is_no_keepers(tmp_path, kind):
    keep, made = tmp_path / "keep", tmp_path / "made"
    made.mkdir()
    (made / "env").write_text("taken=yes\n")
    if kind == "theirs":
        made.rename(keep)
        os.chown(keep, 65534, 65534)
    else:
        keep.symlink_to(made)
    line = ExecLine("n0", list, prelude=prelude(str(keep)))
    assert asyncio.run(line.run('echo "${taken-no}"')).out == b"no\n"
    assert not [*tmp_path.rglob("at.*")]


def test_a_port_there_is_served_here_and_closed_with_the_context(no_leaks):
    async def serve(reader, writer):
        asked = await reader.readuntil(b"\n")
        writer.write(asked * 100_000 if asked == b"much\n" else asked)
        await writer.drain()

    async def ask(port, word):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(word)
        try:
            return await asyncio.wait_for(reader.read(-1), 30)
        finally:
            writer.close()

    async def offered():
        async with here().offer(serve) as port:
            one, much, *others = await asyncio.gather(
                *(ask(port, word) for word in (b"one\n", b"much\n", *[b"x\n"] * 20))
            )
            assert (one, len(much), {*others}) == (b"one\n", 500_000, {b"x\n"})
            # One that leaves before it is answered is in nobody's way.
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"much\n")
            writer.close()
            assert await ask(port, b"again\n") == b"again\n"
        with pytest.raises(ConnectionRefusedError):
            await ask(port, b"late\n")

    asyncio.run(offered())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["env", "-i", "PATH=/nowhere", "/bin/sh", "-c"], "it has no Python 3 yet"),
        (["/bin/false"], "did not start"),
    ],
)
def test_why_no_port_there_can_be_served_is_said(words, why, no_leaks):
    line = ExecLine("n0", lambda command: [*words, command[-1]])

    async def offered():
        async with line.offer(lambda *_: None):
            """Not reached."""

    with pytest.raises(NotOffered, match=why):
        asyncio.run(offered())


@pytest.fixture
def place(tmp_path):
    """A folder with a relay, as agents have it."""
    script = f'exec {sys.executable} -I -S {relay.__file__} "$1"\n'
    (tmp_path / "relay").write_text(script)
    return tmp_path


def test_a_stream_joins_a_socket_there_and_ends_with_either_end(place, no_leaks):
    async def talk():
        line = here()
        with pytest.raises(ConnectionRefusedError):
            await line.stream(str(place / "s"))
        with pytest.raises(ConnectionRefusedError):
            await line.stream("/nowhere/at/all/s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "s"))
            listener.listen()
            near = await line.stream(str(place / "s"))
            far, _ = listener.accept()
            data = os.urandom(3 << 20)
            sending = threading.Thread(target=near.sendall, args=(data,))
            sending.start()
            got = bytearray()
            while len(got) < len(data):
                got += far.recv(1 << 20)
            assert got == data
            sending.join()
            far.sendall(b"back")
            assert near.recv(4, socket.MSG_WAITALL) == b"back"
            near.close()
            assert far.recv(1) == b""
            other = await line.stream(str(place / "s"))
            there, _ = listener.accept()
            await line.close()
            assert there.recv(1) == other.recv(1) == b""
            for each in (far, there, other):
                each.close()

    asyncio.run(talk())


def test_a_line_that_is_closed_as_its_stream_opens_ends_that(place, no_leaks, monkeypatch):
    """As where this process was held up: what the stream waits for is there at once, and nothing else has its turn."""
    joined = ExecLine._joined

    async def late(line, words):
        process, near = await joined(line, words)
        assert select.select([near], [], [], 60)[0]
        return process, near

    monkeypatch.setattr(ExecLine, "_joined", late)

    async def talk():
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "s"))
            listener.listen()
            line = here()
            near = await line.stream(str(place / "s"))
            async with asyncio.timeout(60):
                await line.close()
            assert near.recv(1) == b""
            near.close()
            listener.accept()[0].close()

    asyncio.run(talk())


_WITHIN = (
    "import runpy, sys; relay = runpy.run_path(sys.argv[1]); main = relay['main']; "
    "main.__globals__['_SOON'] = float(sys.argv[2]); main(sys.argv[3])"
)


@pytest.mark.parametrize(("soon", "is_one"), [(60, True), (0, False)])
def test_a_frame_of_which_the_head_comes_first_is_one_write_of_the_relay(
    tmp_path, no_leaks, soon, is_one
):
    """srun keeps the second of two small writes back for 40 ms. Each write is a packet here, and nothing depends on time."""
    head, body, place = b"\0\0\0\5", b"hello", str(tmp_path / "s")
    out, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX) as listener, out:
        listener.bind(place)
        listener.listen()
        words = [sys.executable, "-I", "-S", "-c", _WITHIN, relay.__file__, str(soon), place]
        with theirs:
            running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=theirs)
        with running:
            far, _ = listener.accept()
            with far:
                assert out.recv(9) == b"+"
                far.sendall(head)
                until(lambda: not _unread(far))
                if not is_one:
                    assert out.recv(99) == head
                far.sendall(body)
            assert out.recv(99) == (head + body if is_one else body)
            assert out.recv(99) == b""
            assert running.wait(60) == 0


def _unread(connection):
    """How many of the bytes that were sent by a unix socket were not read yet."""
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, count)
    return count[0]


class Begun(list):
    """The commands that were begun for a line."""

    def __call__(self, words):
        self.append(words)
        return words


def test_scripts_that_follow_one_another_and_the_stream_after_them_share_a_command(place, no_leaks):
    begun, heard = Begun(), []

    async def talk():
        line = ExecLine("n0", begun, prelude="x='a \"b\"'", keeps_command=True)
        said = b"100 %s \\n\xff\n\n"
        script = 'printf %s "$x"; cat; echo one >&2; printf two >&2; x=2; exit 3'
        ran = await line.run(script, data=said, heard=heard.append)
        assert (ran.code, ran.out, ran.err) == (3, b'a "b"' + said, "one\ntwo")
        assert heard == ["one", "two"]
        ran = await line.run('head -c 300000 /dev/zero; echo "$x"; cat; umask; echo "$login_umask"')
        assert ran.out == b"\0" * 300_000 + f'a "b"\n0077\n{umask:04o}\n'.encode()
        assert len(begun) == 1
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "s"))
            listener.listen()
            near = await line.stream(str(place / "s"))
            assert len(begun) == 1
            far, _ = listener.accept()
            with near, far:
                near.sendall(b"there")
                assert far.recv(5, socket.MSG_WAITALL) == b"there"
                far.sendall(b"back")
                assert near.recv(4, socket.MSG_WAITALL) == b"back"
        assert (await line.run("echo on")).out == b"on\n"
        with pytest.raises(ConnectionRefusedError):
            await line.stream("/nowhere/at/all/s")
        assert len(begun) == 2
        await line.close()

    umask = os.umask(0o022)
    os.umask(umask)
    asyncio.run(talk())


def test_what_cannot_share_a_command_has_one_of_its_own(monkeypatch, no_leaks):
    begun, heard = Begun(), []

    async def talk():
        line = ExecLine("n0", begun, keeps_command=True)
        both = await asyncio.gather(line.run("read word; echo $word"), line.run("echo 2"))
        assert [each.out for each in both] == [b"\n", b"2\n"]
        assert len(begun) == 2
        for data in (b"\0", b"a" * 100_000):
            assert (await line.run("cat", data=data)).out == data
        assert len(begun) == 4
        # After one that took too long, and one whose command was ended, there is another.
        with pytest.raises(TimeoutError):
            await line.run("sleep 600", limit=0.2)
        assert (await line.run("echo on")).out == b"on\n"
        assert len(begun) == 5
        process = line._kept._loop.process
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        going = asyncio.ensure_future(line.run("echo here >&2; sleep 600", heard=heard.append))
        while not heard:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(begun) == 6
        await asyncio.to_thread(until, lambda: len({*psutil.Process().children()} - before) == 1)
        (process,) = {*psutil.Process().children()} - before
        os.killpg(process.pid, signal.SIGKILL)
        with pytest.raises(ShellGone):
            await going
        assert (await line.run("echo on")).out == b"on\n"
        assert len(begun) == 7
        monkeypatch.setattr(script_loop, "_REST", 0.0)
        assert (await line.run("echo last")).out == b"last\n"
        await asyncio.to_thread(until, lambda: {*psutil.Process().children()} <= before)
        await line.close()

    before = {*psutil.Process().children()}
    asyncio.run(talk())


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_command_that_was_killed_unseen_or_hangs_is_replaced_before_it_is_asked(
    place, monkeypatch, no_leaks, by
):
    monkeypatch.setattr(script_loop, "_STUBBORN", 0.1)
    monkeypatch.setattr(script_loop, "_ANSWER", 60.0 if by == signal.SIGKILL else 0.2)
    begun = Begun()

    async def talk():
        line = ExecLine("n0", begun, keeps_command=True)
        ran = "echo ran >>" + str(place / "ran")
        assert not (await line.run(ran)).code
        for number in (2, 3):
            # Its end is not known here before the next wait.
            os.killpg(line._kept._loop.process.pid, by)
            assert line._kept._loop.is_there
            assert not (await line.run(ran)).code
            assert len(begun) == number
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place / "s"))
            listener.listen()
            os.killpg(line._kept._loop.process.pid, by)
            near = await line.stream(str(place / "s"))
            listener.accept()[0].close()
            near.close()
        assert (place / "ran").read_text() == "ran\n" * 3
        await line.close()

    asyncio.run(talk())


def test_a_command_that_is_kept_and_does_not_reach_the_machine_is_a_lost_line():
    refused = ["sh", "-c", "echo 'srun: error: Invalid job id' >&2; exit 1"]
    for argv, why in ((refused, "Invalid job id"), (["no-such-program"], "no program no-such")):
        line = ExecLine("n0", lambda words, argv=argv: argv, keeps_command=True)
        with pytest.raises(ShellGone, match=f"n0: .*{why}"):
            asyncio.run(line.run("echo here"))


# ── pools ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def engine(tmp_path, no_leaks):
    made = Engine(tmp_path / "engine")
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """An engine and a pool on it, which tests leave whole."""
    with leaves_nothing():
        engine = Engine(tmp_path_factory.mktemp("engine"))
        pool = pool_on(engine)
        pool.start(lambda _: None)
        yield engine, pool
        pool.close()
        keepers_end(engine)
        engine.close()


def pool_on(engine, **options):
    spec = PoolSpec(
        **{"name": "kept", "provider": "fake", "nodes": 2, "grace": 20.0, "image": PLAIN, **options}
    )
    return Pool(spec, engine, lambda _: None)


def keepers_end(engine):
    for keeper in engine.keepers:
        keeper.wait(60)
    assert not [*engine.folder.glob("keep*")]


def test_a_pool_comes_up_runs_cells_and_moves_values(shared):
    _, pool = shared
    where = "import os\n(os.environ['RANK'], os.environ['NODE_RANK'])"
    assert values(pool, where) == [("0", "0"), ("1", "1")]
    large = os.urandom(5 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2


@pytest.mark.extensive
def test_a_line_that_is_cut_is_made_anew_in_mid_run(shared):
    engine, pool = shared
    events, is_cut = [], []

    def watch(event):
        events.append(event)
        said = [each for each in events if isinstance(each, Output) and "begun" in each.text]
        if said and not is_cut:
            is_cut.append(engine)
            engine.is_cut = True
            for machine in pool.context.generations.machines:
                for process in machine._line._streams:
                    os.killpg(process.pid, signal.SIGKILL)
        if is_cut and any(
            isinstance(each, Phase) and "reach it again" in each.text for each in events
        ):
            engine.is_cut = False

    body = "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('over')\n7"
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), watch)
    assert not outcome.failed
    assert len(outcome.done) == 2
    assert is_cut
    told = "".join(each.text for each in events if isinstance(each, Output) and each.rank == 0)
    assert told.count("over") == told.count("begun") == 1


def test_an_interrupt_ends_the_run_and_the_pool_goes_on(shared):
    _, pool = shared
    begun = set()

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text:
            begun.add(event.rank)
            if len(begun) == 2:
                pool.interrupt()

    pool.look(lambda _: None)
    body = "import time\nx = 3\nprint('begun', flush=True)\ntime.sleep(600)"
    outcome = pool.run(request(pool, body), watch)
    assert outcome.interrupted
    assert values(pool, "x") == [3, 3]


@pytest.mark.extensive
def test_a_notice_of_the_end_reaches_ranks_and_leaves_the_pool_as_it_is(shared):
    engine, pool = shared
    events, mark = [], engine.folder / "saved"
    body = f"""
import os, pathlib, time
import skyward_nb as sky
mark = pathlib.Path({str(mark)!r} + os.environ["RANK"])
sky.on_preempt(mark.touch)
print("begun", flush=True)
while not mark.exists():
    time.sleep(0.01)
"""

    def watch(event):
        if isinstance(event, Output):
            events.append(event)
            begun = {each.rank for each in events if "begun" in each.text}
            if "begun" in event.text and len(begun) == 2:
                for keeper in engine.keepers:
                    os.kill(keeper.pid, signal.SIGUSR2)

    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), watch)
    assert not outcome.failed
    assert "the time limit of this machine's job ends it at" in "".join(e.text for e in events)
    assert values(pool, "5") == [5, 5]


def test_another_client_finds_it_and_the_end_of_the_run(engine):
    pool = pool_on(engine, nodes=1)
    pool.start(lambda _: None)
    mark = engine.folder / "begun"
    body = f"import time\nopen({str(mark)!r}, 'w').close()\ntime.sleep(0.5)\n41 + 1"
    pool.look(lambda _: None)
    run = pool.begin(request(pool, body), lambda _: None)
    assert run
    until(mark.exists)
    entry = pool.entry
    pool.leave()
    other = Pool(entry.spec, engine, lambda _: None, pool_id=entry.pool_id)
    other.attach(lambda _: None)
    try:
        outcome = follow(other, lambda _: None)
        assert len(outcome.done) == 1
    finally:
        other.close()
    keepers_end(engine)


def test_an_agent_that_is_gone_ends_its_keeper_and_the_pool(engine):
    pool = pool_on(engine, nodes=1)
    pool.start(lambda _: None)
    values(pool, "1")
    for keeper in engine.keepers:
        os.kill(keeper.pid, signal.SIGTERM)
    keepers_end(engine)
    with pytest.raises(PoolError, match=r"is gone|agent left"):
        values(pool, "1")


@pytest.mark.extensive
def test_a_pool_that_nobody_comes_back_to_ends_its_keepers(engine):
    pool = pool_on(engine, nodes=1, idle=6.0)
    pool.start(lambda _: None)
    pool.leave()
    keepers_end(engine)
    with pytest.raises(PoolError):
        Pool(pool.spec, engine, lambda _: None, pool_id=pool.pool_id).attach(lambda _: None)


def test_a_keeper_that_nobody_uses_ends(tmp_path, no_leaks, monkeypatch):
    """Its seconds are those of a `sleep` that the test lets go on: none of them is over too soon."""
    second, slow = tmp_path / "second", tmp_path / "bin" / "sleep"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\nuntil rm {second} 2>/dev/null; do {SLEEP} 0.01; done\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    engine = Engine(tmp_path / "engine", patience=2)
    engine.begin(1)
    keeper, keep = engine.keepers[0], engine.keep_of(0)

    def passes():
        second.touch()
        until(lambda: not second.exists() or keeper.poll() is not None)

    until((keep / "env").exists)
    # What runs there keeps it, for longer than its patience.
    begun, end = tmp_path / "begun", tmp_path / "end"
    script = f": >{begun}; until [ -e {end} ]; do {SLEEP} 0.01; done; echo $?"
    with ThreadPoolExecutor() as threads:
        running = threads.submit(lambda: asyncio.run(engine.line(0).run(script)))
        try:
            until(begun.exists)
            for _ in range(4):
                passes()
            assert keeper.poll() is None
        finally:
            end.touch()
        assert running.result().out == b"0\n"
    # What was left hanging there, without a client whose beats leave marks, does not.
    mark = keep / f"at.{os.getpid()}"
    mark.touch()
    os.utime(mark, (time.time() - 600,) * 2)
    for _ in range(10):
        passes()
    assert keeper.wait(60) == 143
    assert not keep.exists()


def test_an_agent_that_cannot_start_says_why_and_the_keeper_waits_for_another(engine):
    pool = pool_on(engine, nodes=1)
    # Its path is short: one too long for a socket is refused for that.
    taken = Path(tempfile.mkstemp(prefix="sky-taken-")[1])
    before = os.environ["SKYWARD_RUNTIME_DIR"]

    async def acquire(spec, pool_id, tell, usual=engine.acquire):
        os.environ["SKYWARD_RUNTIME_DIR"] = str(taken)
        try:
            return await usual(spec, pool_id, tell)
        finally:
            os.environ["SKYWARD_RUNTIME_DIR"] = before

    engine.acquire = acquire
    try:
        with pytest.raises(StartError, match=f"{taken}.*is not a folder"):
            pool.start(lambda _: None)
    finally:
        taken.unlink()
    keepers_end(engine)
