"""Hosts as people write them, and hostfiles."""

import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.words.hosts import Host, parse_host, parse_hostfile, parse_hosts, same_slots


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("gpu1", Host("gpu1")),
        (" gpu1 ", Host("gpu1")),
        ("gpu1.lab.example.org.", Host("gpu1.lab.example.org.")),
        ("node_3", Host("node_3")),
        ("me@gpu1", Host("gpu1", "me")),
        ("me.too@gpu1:2222", Host("gpu1", "me.too", 2222)),
        ("gpu1:22", Host("gpu1", None, 22)),
        ("10.0.0.7", Host("10.0.0.7")),
        ("10.0.0.7:2200", Host("10.0.0.7", None, 2200)),
        ("2001:db8::1", Host("2001:db8::1")),
        ("[2001:db8::1]", Host("2001:db8::1")),
        ("[2001:db8::1]:22", Host("2001:db8::1", None, 22)),
        ("me@[fe80::1%eth0]:22", Host("fe80::1%eth0", "me", 22)),
        ("::1", Host("::1")),
        ("ssh://gpu1", Host("gpu1")),
        ("ssh://me@gpu1:2222/", Host("gpu1", "me", 2222)),
        ("ssh://me@[::1]:2222", Host("::1", "me", 2222)),
    ],
)
def test_hosts_are_read(text, host):
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "host", [Host("gpu1"), Host("gpu1", "me", 22), Host("::1", None, 22), Host("::1", "me")]
)
def test_what_is_written_is_read_again(host):
    assert parse_host(host.address) == host
    assert parse_host(str(host)) == host


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a host name"),
        ("-oProxyCommand=x", "not a host name"),
        ("gpu 1", "not a host name"),
        ("gpu1;ls", "not a host name"),
        ("@gpu1", "not a user name"),
        ("-l@gpu1", "not a user name"),
        ("a b@gpu1", "not a user name"),
        ("gpu1:", "'' is not a port"),
        ("gpu1:ssh", "'ssh' is not a port"),
        ("gpu1:0", "not a port"),
        ("gpu1:65536", "not a port"),
        ("[2001:db8::1", "a host is written"),
        ("[gpu1]:22", "a host is written"),
        ("[::1]22", "a host is written"),
        ("ssh://gpu1/home", "not a host name"),
    ],
)
def test_what_is_no_host(text, says):
    with pytest.raises(OptionError, match="hosts=") as raised:
        parse_host(text)
    assert says in raised.value.message


def test_the_same_host_twice_is_refused():
    assert parse_hosts(["a", "b@a", "a:22"]) == (Host("a"), Host("a", "b"), Host("a", None, 22))
    with pytest.raises(OptionError, match=r"b is listed twice.*ranks_per_node"):
        parse_hosts(["a", "b", "b"])


_FILE = """\
# the lab's
gpu1            slots=8
me@gpu2:2222    slots=8 max_slots=16  # has a new fan

[2001:db8::1]:22 slots=8
"""


def test_a_hostfile():
    hosts = parse_hostfile(_FILE, "lab.hosts")
    assert [host.address for host in hosts] == ["gpu1", "me@gpu2:2222", "[2001:db8::1]:22"]
    assert same_slots(hosts) == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "lab.hosts names no host"),
        ("# none\n", "lab.hosts names no host"),
        ("gpu1\n\ngpu2 slot=8", "lab.hosts, line 3: 'slot=8' is unknown"),
        ("gpu1 slots=0", "lab.hosts, line 1: 'slots=0'"),
        ("gpu1 gpu2", "lab.hosts, line 1: 'gpu2' is unknown"),
        ("gpu1\ngpu2:x", "lab.hosts, line 2: gpu2:x: 'x' is not a port"),
        ("gpu1\n# and again\ngpu1", "lab.hosts, line 3: gpu1 is listed twice; it is on line 1"),
    ],
)
def test_what_is_wrong_in_a_hostfile(text, says):
    with pytest.raises(OptionError) as raised:
        parse_hostfile(text, "lab.hosts")
    assert says in raised.value.message


def test_slots_that_differ():
    assert same_slots(parse_hosts(["a", "b"])) is None
    with pytest.raises(OptionError, match=r"slots differ.*a 4.*b 8.*ranks_per_node"):
        same_slots(parse_hostfile("a slots=4\nb slots=8", "f"))
    with pytest.raises(OptionError, match="b none"):
        same_slots(parse_hostfile("a slots=4\nb", "f"))
