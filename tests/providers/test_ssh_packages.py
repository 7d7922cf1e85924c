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


@pytest.fixture
def uv_pool(ssh, monkeypatch, tmp_path):
    """A pool on a host whose environment uv makes, of what ranks import and `iniconfig`; skips without an index."""
    monkeypatch.setattr(requirements, "BESIDE", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
    ways = {name: value for name in _WAYS if (value := os.environ.get(name))}
    try:
        return ssh("one", image=Image(pip=["iniconfig<2"], env=index_of_pip() | ways))
    except HostNotReady as fault:
        if "cannot be reached" in str(fault) or "does not reach" in str(fault):
            pytest.skip(f"no index of packages is reached: {fault}")
        raise


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
