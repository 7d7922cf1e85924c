"""Hosts on the option line and in Python, as a pool's spec has them."""

import subprocess
import sys
from pathlib import Path

import pytest
from options.lines import spec

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import Default
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits, spec_of
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.hosts import Host, parse_hosts
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


def test_hosts_mean_ssh_and_a_node_each():
    made = spec("hosts=gpu1,me@gpu2:2222")
    assert (made.provider, made.nodes, made.slots) == ("ssh", 2, 1)
    assert made.ssh.hosts == (Host("gpu1"), Host("gpu2", "me", 2222))
    assert spec("hosts=a,b,c nodes=2").nodes == 2


def test_a_hostfile_is_read_where_the_pool_is_made(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "hosts").write_text("gpu1 slots=4\ngpu2 slots=4\n")
    for line in ("hosts=@lab/hosts", "hosts=lab/hosts", f"hosts=@{tmp_path}/lab/hosts"):
        made = spec(line)
        assert (made.nodes, made.ranks_per_node) == (2, 4)
    assert spec("hosts=@lab/hosts ranks_per_node=2").slots == 2


def test_a_hostfile_that_begins_with_a_mark_of_its_encoding(tmp_path):
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfgpu1\r\ngpu2\r\n")
    assert spec(f"hosts=@{tmp_path}/hosts").ssh.hosts == (Host("gpu1"), Host("gpu2"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("provider=ssh", "provider=ssh needs hosts="),
        ("user=me nodes=2", "user= is about hosts"),
        (
            "provider=slurm user=me",
            "and not with provider=slurm, whose login node is login=USER@HOST",
        ),
        ("provider=kubernetes key=own", "key= is about hosts to log in to: it goes with hosts="),
        ("provider=local port=22", "and not with provider=local"),
        ("hosts=a,b nodes=3", "nodes=3, and hosts= has 2"),
        ("hosts=a provider=local", "provider=local knows no hosts="),
        ("hosts=@none", "hosts=@none cannot be read: No such file"),
        ("hosts=a key=none", "key=none: there is no such file"),
        ("provider=ssh key=none", "key=none: there is no such file"),
        ("hosts=a config=none", "config=none: there is no such file"),
        ("hosts=a,b,a", "a is listed twice"),
        ("hosts=own", "hosts=own is a file here: write hosts=@own"),
        ("hosts=a ca=none", "ca=none: there is no such file"),
        ("hosts=a ca=own", "ca=own has no certificate in text form"),
        ("hosts=a cache=scratch", "cache=scratch: name a folder there by its whole path"),
        ("hosts=a cache=/tmp/a:b", "name a folder there by its whole path"),
        ("hosts=a cache=/tmp/$(id)", "name a folder there by its whole path"),
        ("cache=/scratch", "cache= is about machines elsewhere"),
    ],
)
def test_what_is_refused(line, says, tmp_path):
    (tmp_path / "own").write_text("gpu1\n")
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in raised.value.message


def test_keys_and_config_are_found_from_another_folder_too(tmp_path):
    (tmp_path / "k").touch()
    made = spec("hosts=a key=k config=./k trust=first user=me port=22")
    assert made.ssh.key == made.ssh.config == str(tmp_path / "k")
    assert (made.ssh.trust, made.ssh.user, made.ssh.port) == ("first", "me", 22)


def test_hosts_of_defaults_and_a_provider_on_the_line():
    hosts = Default("hosts", "a,b", "file")
    user = Default("user", "me", "file")
    assert spec("", Default("provider", "ssh", "file"), hosts, user).ssh.user == "me"
    assert spec("provider=local nodes=3", hosts, user).ssh is None


def test_a_pool_that_is_up_is_what_is_asked_for_or_not():
    made = spec("hosts=a,b,c nodes=2 user=me")
    for line in ("", "hosts=a,b,c", "user=me", "hosts=c,b,a"):
        check_fits(made, parse(line).pool)
    for line in ("hosts=a,b", "user=you", "trust=first"):
        with pytest.raises(PoolError, match="is up with"):
            check_fits(made, parse(line).pool)
    with pytest.raises(PoolError, match="is up with hosts=none"):
        check_fits(PoolSpec(), parse("hosts=a").pool)


def test_the_hosts_of_the_nodes_come_first():
    access = spec("hosts=a,b,me@c,d nodes=2").ssh
    assert access.living_on(["me@c", "b"]).hosts == parse_hosts(["me@c", "b", "a", "d"])


def test_in_python(tmp_path):
    (tmp_path / "k").touch()
    given = sky.SSH(
        hosts=["gpu1", "me@gpu2:22"], user="you", port=2222, key=Path("k"), trust="first"
    )
    made = spec_for("name", provider=given)
    assert made.ssh.hosts == parse_hosts(["gpu1", "me@gpu2:22"])
    assert (made.ssh.user, made.ssh.port, made.ssh.trust) == ("you", 2222, "first")
    assert made.ssh.key == str(tmp_path / "k")
    assert spec_for("name", provider=sky.SSH(hosts="a,b"), nodes=1).nodes == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (sky.SSH(hosts=[]), "name hosts"),
        (sky.SSH(hosts=["a,b"]), "takes texts"),
        (sky.SSH(hosts=[1]), "takes texts"),
        (sky.SSH(hosts=["a"], port="x"), "not a port"),
        (sky.SSH(hosts=["a"], trust="all"), "choose one of known, first"),
    ],
)
def test_what_is_refused_in_python(given, says):
    with pytest.raises(OptionError) as raised:
        spec_for("name", provider=given)
    assert says in raised.value.message


@pytest.mark.parametrize(
    ("asked", "says"), [({"spot": True}, "those of provider=aws"), ({"max_cost": -1}, "dollars")]
)
@pytest.mark.parametrize("provider", [sky.SSH(hosts=["a"]), sky.Local()])
def test_what_is_about_rented_machines_is_refused_of_others(asked, says, provider):
    with pytest.raises(OptionError, match=says):
        spec_for("name", **asked, provider=provider)


def test_what_speaks_ssh_is_not_imported_before_it_is_used():
    code = (
        "import sys, skyward_nb as sky\n"
        "sky.Compute(provider=sky.SSH(hosts=['a']))\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('asyncssh', 'cryptography')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_pool_on_hosts_lives_on_for_longer_without_a_client():
    assert spec("nodes=2").idle == 600
    assert spec("hosts=gpu1").idle == 1800
    assert spec("hosts=gpu1 idle=10m").idle == 600
    assert spec("hosts=gpu1", Default("idle", "1m", "a file")).idle == 60
    assert spec_of(spec("hosts=gpu1 idle=60s"), PoolOptions(nodes=1)).idle == 60
    assert spec_for("name", provider=sky.SSH(hosts=["gpu1"])).idle == 1800


def test_where_environments_go_and_whom_hosts_trust(tmp_path, monkeypatch):
    ca = tmp_path / "ca.pem"
    ca.write_text("the company's\n-----BEGIN CERTIFICATE-----\n")
    monkeypatch.chdir(tmp_path)
    made = spec("hosts=a cache=/scratch/$USER/sky ca=ca.pem")
    assert (made.cache, made.ca) == ("/scratch/$USER/sky", str(ca))
    assert spec_for("cells", provider=sky.SSH(hosts=["a"]), cache="~/big", ca=ca).ca == str(ca)
    check_fits(made, parse("cache=/scratch/$USER/sky ca=./ca.pem").pool)
    with pytest.raises(PoolError, match=r"is up with cache=/scratch/\$USER/sky"):
        check_fits(made, parse("cache=/elsewhere").pool)
    # A default is for pools that have a use for it.
    monkeypatch.setenv("SKYWARD_CACHE", "/scratch")
    assert spec_for("cells").cache is None
    assert spec_for("cells", provider=sky.SSH(hosts=["a"])).cache == "/scratch"
