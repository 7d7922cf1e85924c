"""The seam to a machine, as this machine's own shell keeps it."""

import asyncio
import errno
import os
import shutil
import subprocess

import pytest

from skyward_nb.bootstrap.remote_shell import LINE, spoken

SAYS = "printf '%s' \"$x\"; cat; echo one >&2; echo two >&2; exit 3"


def test_a_script_gets_its_data_and_says_how_it_ended(shell):
    heard = []
    ran = asyncio.run(shell.run(f"x='a \"b\" !'\n{SAYS}", data=b"\0data\n", heard=heard.append))
    assert (ran.code, ran.out, ran.err) == (3, b'a "b" !\0data\n', "one\ntwo\n")
    assert heard == ["one", "two"]


LOGINS = [["sh"], ["dash"], ["bash"], ["busybox", "sh"], ["zsh"], ["ksh"], ["mksh"], ["fish"], ["csh"], ["tcsh"]]  # fmt: skip


@pytest.mark.parametrize("words", LOGINS, ids=" ".join)
def test_every_login_shell_hands_the_script_on(words):
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]} here")
    script = 'x="it\'s"\nprintf \'%s\\\\n\' "  $x! \\$HOME"\ncat'
    said = subprocess.run(
        [*words, "-c", LINE], input=spoken(script) + b"data\0\n", capture_output=True
    )
    assert (said.stdout, said.stderr) == (b"  it's! $HOME\\ndata\0\n", b"")


def test_a_script_can_tell_what_umask_the_login_has(shell):
    before = os.umask(0o027)
    try:
        ran = asyncio.run(shell.run("echo $login_umask; umask"))
    finally:
        os.umask(before)
    assert [int(word, 8) for word in ran.out.split()] == [0o027, 0o077]


def test_no_process_list_shows_a_script(shell):
    script = "x=hunter2; for each in $$ $PPID; do tr '\\0' ' ' </proc/$each/cmdline; done"
    ran = asyncio.run(shell.run(script))
    assert b"eval" in ran.out
    assert b"hunter2" not in ran.out


def test_what_scripts_write_is_nobody_elses(shell, tmp_path):
    asyncio.run(shell.run("echo x >file; mkdir folder"))
    asyncio.run(shell.send(str(tmp_path / "home/sent"), [b"a", b"b"]))
    modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "home").iterdir()}
    assert modes == {"file": 0o600, "folder": 0o700, "sent": 0o600}


def test_a_script_that_takes_too_long_is_ended_with_what_it_started(shell, tmp_path):
    script = f"sleep 600 & echo $! >{tmp_path}/pid; echo on >&2; wait"

    async def run_too_long():
        """The clock jumps ahead once all of it runs."""
        loop = asyncio.get_running_loop()
        clock = loop.time

        def jump(_line):
            loop.time = lambda: clock() + 600

        await shell.run(script, limit=600, heard=jump)

    with pytest.raises(TimeoutError):
        asyncio.run(run_too_long())
    pid = (tmp_path / "pid").read_text().strip()
    assert pid
    ran = asyncio.run(shell.run(f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; echo gone"))
    assert ran.out == b"gone\n"


def test_a_file_is_there_whole_or_not_at_all(shell, tmp_path):
    def torn():
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "home/file"
    with pytest.raises(OSError, match="No space"):
        asyncio.run(shell.send(str(path), torn()))
    assert [*path.parent.iterdir()] == []
    sizes = []
    asyncio.run(shell.send(str(path), [b"aa", b"bbb"], mode=0o700, told=sizes.append))
    assert (path.read_bytes(), path.stat().st_mode & 0o777, sizes) == (b"aabbb", 0o700, [2, 5])
