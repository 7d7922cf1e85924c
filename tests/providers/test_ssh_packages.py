"""Packages for a pool of hosts that is up, by the real uv where an index of packages is reached."""

import os
from pathlib import Path

import pytest
from bootstrap.homes import index_of_pip
from pools import found, values
from sshds import lacks

from skyward_nb.bootstrap import environment, requirements
from skyward_nb.options.specs import extended
from skyward_nb.words.errors import HostNotReady, StartError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
IS_FOR_POOLS = True
_WAYS = ("SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")


def index_certificates():
    """Those by which the index of packages is reached, if they are not the system's."""
    named = os.environ.get("SSL_CERT_FILE")
    return Path(named or pytest.importorskip("certifi").where()).read_text()


@pytest.fixture
def uv_pool(uv_pool_of):
    """A pool on a host whose environment uv makes, of what ranks import and `iniconfig`; skips without an index."""
    return uv_pool_of()


@pytest.fixture
def uv_pool_of(ssh, monkeypatch, tmp_path):
    """The same with further options."""
    monkeypatch.setattr(requirements, "BESIDE", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
    ways = {name: value for name in _WAYS if (value := os.environ.get(name))}

    def make_one(**options):
        if "ca" in options:
            ways.pop("SSL_CERT_FILE", None)
        image = Image(pip=["iniconfig<2"], env=index_of_pip() | ways)
        try:
            return ssh("one", image=image, **options)
        except HostNotReady as fault:
            if "cannot be reached" in str(fault) or "does not reach" in str(fault):
                pytest.skip(f"no index of packages is reached: {fault}")
            raise

    return make_one


def with_pip(pool, *packages):
    return extended(pool.spec, PoolOptions(pip=packages))


@pytest.mark.extensive
def test_packages_are_installed_beside_what_is_there(uv_pool):
    pool = uv_pool
    assert values(pool, "x = 1\nimport sys, iniconfig\nsys.prefix")
    (before,) = values(pool, "sys.prefix")
    pids = pool.pids
    with pytest.raises(HostNotReady, match="no-such-package-of-sky was not found") as refused:
        pool.become(with_pip(pool, "no-such-package-of-sky"), lambda _: None)
    assert "environment could not be made" in str(refused.value)
    with pytest.raises(HostNotReady, match="no versions of its packages fit together") as refused:
        pool.become(with_pip(pool, "iniconfig>=2"), lambda _: None)
    assert "iniconfig<2 and iniconfig>=2" in str(refused.value)
    assert (values(pool, "x"), pool.pids, pool.is_ready) == ([1], pids, True)

    change = pool.become(with_pip(pool, "six"), lambda _: None)
    words, lost = change.notes
    assert "six 1." in words
    assert "iniconfig" not in words
    assert lost.endswith(" x")
    (after,) = values(pool, "import six, iniconfig, sys\nsys.prefix")
    assert after != before
    assert Path(before).is_dir()
    assert values(pool, "iniconfig.__file__.startswith(sys.prefix)") == [True]

    # Who comes later, and ranks that begin anew, have them, too.
    pool.restart(lambda _: None)
    assert values(pool, "import six\nsix.__name__") == ["six"]
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert again.spec.image.pip == ("iniconfig<2", "six")
    assert again.become(with_pip(again, "six"), lambda _: None).notes == ()
    assert values(again, "import six\nsix.__name__") == ["six"]
    again.close()


@pytest.mark.extensive
def test_ranks_go_back_to_what_they_had_whatever_would_be_made_for_it_now(uv_pool, monkeypatch):
    """As after another version of uv, of this package or of the driver, or where Python.h was lacking."""
    pool = uv_pool
    (had,) = values(pool, "import sys\nsys.prefix")
    pool.leave()
    pool = found(pool)
    pool.attach(lambda _: None)
    monkeypatch.setattr(environment, "_FORM", 2)
    begin = pool.context.generations.begin
    errors = iter([StartError("default", "rank 0: no such device")])

    def fails_once(*given, **more):
        for error in errors:
            raise error
        return begin(*given, **more)

    monkeypatch.setattr(pool.context.generations, "begin", fails_once)
    with pytest.raises(StartError):
        pool.become(with_pip(pool, "six"), lambda _: None)
    pool.restart(lambda _: None)
    assert values(pool, "import sys\nsys.prefix") == [had]
    words, *_ = pool.become(with_pip(pool, "six"), lambda _: None).notes
    assert "six 1." in words and "iniconfig" not in words
    assert values(pool, "import six, sys\nsys.prefix")[0] != had
    pool.close()


@pytest.mark.extensive
def test_all_that_is_made_for_a_pool_is_in_the_folder_that_is_named(
    uv_pool_of, server, tmp_path, monkeypatch
):
    """On a host whose home has no room for it; ranks trust what `ca=` names, too."""
    ca = tmp_path / "ca.pem"
    ca.write_text("# of the company\n" + index_certificates())
    folder = f"{tmp_path}/$USER/big"
    pool = uv_pool_of(cache=folder, ca=str(ca))
    look = "import os, ssl, sys\n(sys.prefix, os.environ['SKYWARD_CACHE_DIR'], os.environ['SSL_CERT_FILE'])"
    ((prefix, cache, trusted),) = values(pool, look)
    assert cache == folder.replace("$USER", server.user)
    assert prefix.startswith(f"{cache}/envs/")
    assert trusted.startswith(f"{cache}/ca/")
    assert "# of the company" in Path(trusted).read_text()
    assert any(Path(cache, "uv/cache").iterdir())
    # Another client knows it, and adds packages there.
    pool.leave()
    pool = found(pool)
    pool.attach(lambda _: None)
    pool.become(with_pip(pool, "six"), lambda _: None)
    ((after, cache_now, trusted_now),) = values(pool, f"import six\n{look}")
    assert after.startswith(f"{cache}/envs/") and after != prefix
    assert (cache_now, trusted_now) == (cache, trusted)
    pool.close()
