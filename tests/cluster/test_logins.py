"""Who may log in, how, and what is said to whoever may not; what another user of a host can learn."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import asyncssh
import pytest
from cluster.notebooks import nothing_left

pytestmark = pytest.mark.timeout(200)
OLD = ("3.8", "3.9", "3.7", "3.10")


def refused(book, more=""):
    """What is said of a pool that cannot be; nothing of it is anywhere."""
    ran = book.cell("1", more)
    assert ran.status == "error", ran.picture
    nothing_left(book.town)
    return f"{ran.error[0]}: {ran.error[1]}"


# ── ways ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.extensive
def test_hosts_behind_another_are_reached_by_way_of_it(hosts, notebook):
    town = hosts(3, behind=True)
    with notebook(town) as book:
        assert book.values("socket.gethostname()") == town.names


@pytest.mark.extensive
def test_a_host_is_reached_by_ipv6(hosts, notebook):
    town = hosts(1)
    config = town.folder / "config6"
    config.write_text(f"Host *\n  UserKnownHostsFile {town.known_hosts}\n")
    with notebook(town) as book:
        book.options = (
            f"hosts=ann@[{town[0].address6}]:22 config={config} key={town.key} image=here"
        )
        assert book.values("socket.gethostname()") == town.names


@pytest.mark.extensive
def test_a_host_is_named_by_its_address_with_all_said_on_the_line(hosts, notebook):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].start_sshd(Port=2222)
    config = town.folder / "empty"
    config.write_text("")
    with notebook(town, XDG_CONFIG_HOME=str(town.folder / "own")) as book:
        book.options = (
            f"hosts={town[0].address} port=2222 user=ann key={town.key} config={config} "
            "trust=first image=here"
        )
        assert book.values("socket.gethostname()") == town.names


@pytest.mark.extensive
def test_one_session_is_enough_and_nothing_listens_but_sshd(hosts, notebook):
    town = hosts(2)
    for host in town:
        host.stop_sshd()
        host.start_sshd(MaxSessions=1)
    with notebook(town) as book:
        assert book.values("socket.gethostname()") == town.names
        for host in town:
            # Local address, in hexadecimal with its port; 0A is listening.
            lines = host.run("cat /proc/net/tcp /proc/net/tcp6").splitlines()
            listening = {row.split()[1] for row in lines if row.split()[3] == "0A"}
            assert {each.rpartition(":")[2] for each in listening} == {"0016"}, listening
        book.here("large = os.urandom(5_000_000)")
        assert book.values("len(large)") == [5_000_000] * 2


@pytest.mark.extensive
@pytest.mark.parametrize(
    "login", [pytest.param("/bin/sh", marks=pytest.mark.extensive), "/bin/bash"]
)
def test_the_login_shell_does_not_matter(hosts, notebook, login):
    town = hosts(1, login=login)
    noisy = town[0].file("/home/ann/.bashrc")
    noisy.write_text("(sleep 0.5; echo late) &\necho welcome; printf 'to this fine machine'\n")
    with notebook(town) as book:
        assert book.values("socket.gethostname()") == town.names
        book.here("kept = 5")
        book.well("kept")
        words = book.kernel.restart(by_kill=True)
        ran = book.kernel.run(re.search(r"%sky attach pool=\S+", words)[0], 90)
        assert ran.status == "ok", ran.traceback
        assert book.kernel.run("%%sky_remote\nkept").result == "[0] 5"


@pytest.mark.extensive
@pytest.mark.parametrize("word", ["AllowStreamLocalForwarding no", "DisableForwarding yes"])
def test_a_server_that_forwards_nothing_is_reached_by_a_program_there(hosts, notebook, word):
    town = hosts(2)
    for host in town:
        host.stop_sshd()
        host.start_sshd(MaxSessions=3, **dict([word.split()]))
        host.file("/home/ann/.bashrc").write_text("echo welcome; printf 'to this machine'\n")
    with notebook(town) as book:
        assert book.values("socket.gethostname()") == town.names
        book.here("large = os.urandom(5_000_000)")
        assert book.values("len(large)") == [5_000_000] * 2
        book.well("kept = large[:3_000_000]")
        words = book.kernel.restart(by_kill=True)
        ran = book.kernel.run(re.search(r"%sky attach pool=\S+", words)[0], 90)
        assert ran.status == "ok", ran.traceback
        assert book.kernel.run("%%sky_remote\nlen(kept)").result == "[0-1] 3000000"


@pytest.mark.extensive
def test_a_server_that_forwards_nothing_and_allows_one_session_is_told_with_what_to_do(
    hosts, notebook
):
    town = hosts(1)
    town[0].stop_sshd()
    town[0].start_sshd(AllowStreamLocalForwarding="no", MaxSessions=1)
    with notebook(town) as book:
        said = refused(book)
        assert "gpu1" in said and "AllowStreamLocalForwarding" in said and "MaxSessions" in said, (
            said
        )


def test_a_login_that_runs_nothing_is_told(hosts, notebook):
    town = hosts(1, login="/usr/sbin/nologin")
    with notebook(town) as book:
        said = refused(book)
        assert "gpu1" in said and "no login shell" in said, said
    town[0].stop_sshd()
    town[0].start_sshd(ForceCommand="internal-sftp")
    with notebook(town) as book:
        said = refused(book)
        assert "gpu1" in said and "transfer files, but run nothing" in said, said


# ── keys ────────────────────────────────────────────────────────────────────────────────


def test_a_changed_host_key_is_an_error_of_its_own(hosts, notebook):
    town = hosts(2)
    town[1].stop_sshd()
    town[1].new_host_key(town.folder)
    town[1].start_sshd()
    known = town.known_hosts.read_text()
    with notebook(town) as book:
        said = refused(book)
        assert "gpu2" in said and "chang" in said, said
        assert "gpu1" not in said.partition("gpu2")[0].partition(":")[2], said
        # Also not for who trusts the first key: this is not the first.
        assert "chang" in refused(book, "trust=first")
    assert town.known_hosts.read_text() == known


def test_an_unknown_host_key_is_shown_with_what_accepts_it(hosts, notebook):
    town = hosts(1)
    town.known_hosts.write_text("")
    shown = asyncssh.import_public_key(town[0].host_key).get_fingerprint()
    with notebook(town) as book:
        said = refused(book)
        assert shown in said, said
        assert re.search(r"ssh-keyscan|ssh .*gpu1|ssh .*" + re.escape(town[0].address), said), said
    assert town.known_hosts.read_text() == ""


@pytest.mark.extensive
def test_the_first_key_is_pinned_where_that_is_asked_for(hosts, notebook):
    town = hosts(1)
    town.known_hosts.write_text("")
    own = town.folder / "own"
    with notebook(town, XDG_CONFIG_HOME=str(own)) as book:
        book.options += " trust=first"
        assert book.values("socket.gethostname()") == town.names
        assert book.kernel.run("%sky down all", 60).status == "ok"
        pins = [path for path in own.rglob("*") if path.is_file()]
        assert [path.stat().st_mode & 0o777 for path in pins] == [0o600]
        town[0].stop_sshd()
        town[0].new_host_key(town.folder)
        town[0].start_sshd()
        assert "chang" in refused(book)
    assert town.known_hosts.read_text() == ""


def test_a_refused_key_is_named(hosts, notebook):
    town = hosts(2)
    town[1].authorize("ann", "")
    with notebook(town) as book:
        said = refused(book)
        assert "gpu2" in said and str(town.key) in said, said


def test_a_host_that_is_not_there_is_named(hosts, notebook):
    town = hosts(2)
    town[1].stop_sshd()
    with notebook(town) as book:
        said = refused(book)
        assert "gpu2" in said and "sshd" in said, said


@pytest.mark.extensive
def test_fewer_nodes_than_hosts_are_the_healthy_ones(hosts, notebook):
    town = hosts(4)
    town[0].stop_sshd()
    town[2].cut()
    with notebook(town, leaves=True) as book:
        book.options += " nodes=2"
        ran = book.well("print(socket.gethostname())")
        assert "gpu2" in ran.picture and "gpu4" in ran.picture, ran.picture


# ── what a host has, and lacks ──────────────────────────────────────────────────────────


def old_python():
    """A folder with a Python that is too old, if there is one here."""
    versions = Path.home() / ".pyenv/versions"
    for minor in OLD:
        for found in sorted(versions.glob(f"{minor}.*/bin")):
            return str(found)
    pytest.skip("there is no old Python here")


@pytest.mark.extensive
def test_an_old_python_and_no_way_out_are_told_with_what_to_do(hosts, notebook):
    town = hosts(1, python=old_python())
    with notebook(town) as book:
        nobody = "http://127.0.0.1:1/simple"
        book.here(
            f"far = sky.Image(env=dict(UV_DEFAULT_INDEX={nobody!r}, UV_PYTHON_INSTALL_MIRROR={nobody!r}))"
        )
        book.options = f"hosts=gpu1 config={town.config} image=far"
        said = refused(book)
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert "gpu1" in said and own in said and "interpreter" in said, said


def test_no_way_out_is_told_with_what_to_do(hosts, notebook):
    """Nobody reaches this index, also over the line from here."""
    town = hosts(1)
    with notebook(town) as book:
        book.options = f"hosts=gpu1 config={town.config} image=here"
        book.has_environment_of("http://127.0.0.1:1/simple")
        said = refused(book)
        assert "gpu1" in said and "interpreter" in said, said


@pytest.mark.extensive
def test_an_interpreter_that_is_another_minor_is_refused(hosts, notebook):
    old = old_python()
    town = hosts(1, python=old)
    with notebook(town) as book:
        book.here(f"here = sky.Image(interpreter='{old}/python3')")
        said = refused(book)
        assert "gpu1" in said and f"{sys.version_info.major}.{sys.version_info.minor}" in said


def test_a_full_disk_is_told_and_leaves_nothing_half_made(new_hosts, notebook):
    town = new_hosts(1, disk="32m")
    town[0].fill(leave=100_000)
    with notebook(town) as book:
        said = refused(book)
        assert "gpu1" in said and re.search("space|full|room", said), said
        town[0].unfill()
        assert book.values("socket.gethostname()") == town.names


@pytest.mark.extensive
def test_memory_that_is_full_is_told_and_the_pool_lives(hosts, notebook):
    town = hosts(1, disk="32m")
    with notebook(town) as book:
        book.well("1")
        for folder in ("/home", "/dev/shm"):
            town[0].fill(folder, leave=1_000_000)
        book.here("large = os.urandom(50_000_000)")
        ran = book.cell("len(large)")
        assert ran.status == "error"
        assert re.search("space|full|fit", ran.error[1]), ran.error
        for folder in ("/home", "/dev/shm"):
            town[0].unfill(folder)
        book.here("large = large[:5_000_000]")
        assert book.values("len(large)") == [5_000_000]


# ── somebody else ───────────────────────────────────────────────────────────────────────

SECRET = "s3cr3t-of-ann"

LOOKED_FOR = "s3cr3t-of-[a]nn"
"""The same as a pattern, so that whoever looks does not find their own words."""

SNOOP = f"""
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c '{LOOKED_FOR}'
grep -rl '{LOOKED_FOR}' /tmp /var/tmp /dev/shm /home /run 2>/dev/null
find /tmp /var/tmp /dev/shm /home/ann /run -user ann \\( -readable -o -writable \\) -not -type l 2>/dev/null
true
"""


def test_another_user_learns_nothing(hosts, notebook):
    town = hosts(1)
    host = town[0]
    with notebook(town) as book:
        book.options += f" env=TOKEN={SECRET}"
        book.here(f"mine = '{SECRET}' * 200_000\nsmall = '{SECRET}'")
        assert book.values("[os.environ['TOKEN'], len(mine), small]")[0][0] == SECRET
        counted, *found = host.run(SNOOP, user="bob").splitlines()
        assert counted == "0"
        assert found == []
        # Ann's own search finds it, so bob's could have.
        assert any("/dev/shm/" in each for each in host.run(SNOOP, user="ann").splitlines())
        sockets = host.run("find /tmp /run /home/ann -type s").split()
        assert sockets
        ask = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        for path in sockets:
            with pytest.raises(RuntimeError, match="PermissionError"):
                host.run(f'{sys.executable} -c "{ask}" {path}', user="bob")


@pytest.mark.parametrize(
    "how",
    [
        "mkdir",
        pytest.param("touch", marks=pytest.mark.extensive),
        *(
            pytest.param(each, marks=pytest.mark.extensive)
            for each in ("ln -s ~ann", "ln -s /nowhere")
        ),
    ],
)
def test_another_user_in_the_way_is_told_of(hosts, notebook, how):
    town = hosts(1)
    place = "/tmp/skyward_nb-4001"
    town[0].run(f"{how} {place}", user="bob")
    with notebook(town, leaves=True) as book:
        ran = book.cell("1")
        assert ran.status == "error", ran.picture
        assert f"cannot use {place}" in ran.error[1], ran.error
        town[0].run(f"rm -r {place}", user="bob")
        assert book.values("socket.gethostname()") == town.names
    nothing_left(town)


def test_no_word_of_the_person_is_in_a_process_list(hosts, notebook):
    """Also not while the pool starts: everything that ever runs is looked at."""
    town = hosts(1)
    host = town[0]
    script = "while :; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; done"
    words = host.box.entering("/bin/sh", "-c", script)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, errors="replace") as looking:
        seen: set[str] = set()
        watching = threading.Thread(target=lambda: seen.update(looking.stdout))
        watching.start()
        try:
            with notebook(town) as book:
                book.options += f" env=TOKEN={SECRET}"
                book.well("os.environ['TOKEN'] and None")
        finally:
            for pid, command in host.processes().items():
                if "while :" in command:
                    host.kill(pid)
            watching.join()
    assert "skyward_nb.node\n" in seen
    assert not [each for each in seen if SECRET in each]
