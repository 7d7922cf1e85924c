"""Of which failed logins the host itself gave no answer: what is paid for such machines is in vain."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile

import asyncssh
import pytest

from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.error_translation import fault_of, proxy_fault
from skyward_nb.providers.ssh.settings import settings_for
from skyward_nb.words.hosts import Host, SSHAccess

HOST = Host(name="192.0.2.1")


@pytest.fixture
def access(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return SSHAccess(hosts=(HOST,))


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        (TimeoutError(), True),
        (OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)), True),
        (OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH)), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), False),
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), False),
    ],
)
def test_who_says_that_there_is_no_way_is_not_the_host(access, error, silent):
    fault = asyncio.run(fault_of(settings_for(access, HOST), error, 1.0))
    assert fault.silent is silent


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        ("`aws ssm ...` ended with status 254: TargetNotConnected: i-1 is not connected", True),
        ("`ssh ...` ended with status 255: channel 0: open failed: connect failed: No route to host", True),
        ("`ssh ...` ended with status 255: ssh: connect to host bastion port 22: Connection refused", True),
        ("`ssh ...` ended with status 255: channel 0: open failed: connect failed: Connection refused", False),
    ],
)  # fmt: skip
def test_a_command_on_the_way_fails_and_the_host_may_have_refused(said, silent):
    fault = proxy_fault("i-1", said)
    assert fault.silent is silent and said in fault.why


def test_a_command_on_the_way_that_ends_at_once_is_no_answer(tmp_path, access):
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand sh -c 'echo not connected >&2; exit 254'\n")
    with_config = SSHAccess(hosts=(HOST,), config=str(config))

    async def dial():
        with pytest.raises(Exception, match="status 254: not connected") as raised:
            await Dialer(with_config).dial(HOST, limit=5.0, tries=1)
        return raised.value

    assert asyncio.run(dial()).silent


def test_comments_behind_a_value_are_no_part_of_it(access, tmp_path):
    (tmp_path / ".ssh").mkdir()
    config = tmp_path / ".ssh/config"
    config.write_text(
        f"Host {HOST.name} # the big one, not elsewhere\n"
        "  HostName 10.0.0.1 # it's in Bob's rack\n  User ann\t# don't\n  Port 2222 #x\n"
        '# "isn\'t"\n\n  LogLevel = QUIET # the admin\'s "\n'
        '  IdentityFile "/keys/a#b" # hers\n'
        "Host elsewhere\n  User eve\n"
    )
    found = settings_for(SSHAccess(hosts=access.hosts, config=str(config)), HOST)
    assert (found.place.name, found.place.port, found.user) == ("10.0.0.1", 2222, "ann")
    assert found.identities == ("/keys/a#b",)
    config.write_text("Include more\n")
    (tmp_path / ".ssh/more").write_text(
        "Host *\n  ProxyCommand nc # %h\n  User ann\\'s # it's\n  Port 'x\n"
    )
    with pytest.raises(Unreachable, match=r"ssh/more line 4: No closing quotation"):
        settings_for(SSHAccess(hosts=access.hosts, config=str(config)), HOST)


@pytest.mark.parametrize("behind", ["", "# not elsewhere", "# elsewhere's not"])
def test_a_comment_on_a_line_that_chooses_hosts_chooses_none(access, tmp_path, behind, monkeypatch):
    config = tmp_path / "config"
    config.write_text(
        f"# all\nHost gpu {behind}\n  HostName 10.0.0.1\n\n  # one\nHost elsewhere\n  HostName 10.0.0.2\n"
    )
    if not behind:  # such a file is read as it is
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", None)
    found = settings_for(SSHAccess(hosts=access.hosts, config=str(config)), Host(name="elsewhere"))
    assert found.place.name == "10.0.0.2"
    named = asyncssh.SSHClientConnectionOptions(**found.named, host="elsewhere")
    assert named.host == "10.0.0.2"
    assert ("options" in found.named) is bool(behind)


def test_comments_that_change_nothing_for_a_host_leave_its_config_to_asyncssh(access, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "Host gpu\n  Port 22 # ours\nHost elsewhere\n  HostName 10.0.0.2\nMatch final\n  User eve\n"
    )
    read = SSHAccess(hosts=access.hosts, config=str(config))
    assert settings_for(read, Host(name="elsewhere")).named["config"] == [str(config)]
    assert "options" in settings_for(read, Host(name="gpu")).named
