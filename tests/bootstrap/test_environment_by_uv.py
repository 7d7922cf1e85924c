"""uv itself: how it is called, brought along, or fetched."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bootstrap.homes import (
    PYTHON,
    Told,
    facts_of,
    fake_uv,
    folders,
    make_ready,
    refused,
    shell_at,
    there,
)

from skyward_nb.bootstrap.environment import digest_of, ready
from skyward_nb.bootstrap.machine_facts import probe
from skyward_nb.bootstrap.uv import version as uv_version
from skyward_nb.words.image import Image


def test_passwords_are_in_no_argv(shell, tmp_path):
    facts = facts_of(shell, uvs=(fake_uv(tmp_path),))
    image = Image(
        pip=["x @ https://me:hunter3@host/x.whl"],
        env={"UV_DEFAULT_INDEX": "https://me:hunter2@host/simple", "TOKEN": "hunter4"},
    )
    make_ready(shell, image, facts)
    lines = (tmp_path / "calls").read_text().splitlines()
    argv = "\n".join(line for line in lines if line.startswith("argv:"))
    assert "pip install" in argv
    assert "hunter" not in argv
    assert "UV_DEFAULT_INDEX=https://me:hunter2@host/simple" in lines
    assert any(line.startswith("stdin: x") and "hunter3" in line for line in lines)
    assert "hunter4" not in "\n".join(lines)
    files = [each for each in (tmp_path / "home").rglob("*") if each.is_file()]
    assert not [each for each in files if b"hunter" in each.read_bytes()]


def uv_calls(tmp_path, word):
    lines = (tmp_path / "calls").read_text().splitlines()
    return [line for line in lines if line.startswith("argv:") and word in line]


def test_torch_on_gpus_has_a_python_with_headers(tmp_path):
    """Triton compiles with Python.h, which Debian's own Python lacks."""
    gpus = {"gpus": ("NVIDIA L4",), "driver": "570.1"}
    pythons = {"with": (PYTHON.path,), "without": (), "offline": ()}
    used = {}
    for name, headers in pythons.items():
        folder = tmp_path / name
        body = 'case "$*" in *--managed-python*) exit 1 ;; esac' if name == "offline" else ""
        shell = shell_at(tmp_path / f"home-{name}")
        facts = facts_of(shell, uvs=(fake_uv(folder, body),), headers=headers, **gpus)
        _, told = make_ready(shell, Image(pip=["torch"]), facts)
        used[name] = ["--managed-python" in line for line in uv_calls(folder, " venv ")]
        assert ("torch.compile and Triton will lack it" in told.text()) == (name == "offline")
    assert used == {"with": [False], "without": [True], "offline": [True, False]}


UNTRUSTED = (
    'echo "error sending request for url (https://pypi.org/simple/six/): invalid peer certificate: '
    'UnknownIssuer" >&2; exit 2'
)


@pytest.mark.parametrize("knows", [True, False])
def test_authorities_of_the_system_are_asked_where_a_proxy_reads_tls(shell, tmp_path, knows):
    when = '[ "$UV_SYSTEM_CERTS" = 1 ] || ' if knows else ""
    body = f'case "$1 $2" in "pip compile" | "pip install") {when}{{ {UNTRUSTED}; }} ;; esac'
    facts = facts_of(shell, uvs=(fake_uv(tmp_path, body),))
    if knows:
        make_ready(shell, Image(), facts)
    else:
        text = refused(shell, Image(), facts)
        assert "it does not trust the certificate of pypi.org" in text
        assert "SSL_CERT_FILE" in text
    assert len(uv_calls(tmp_path, "pip install")) <= 2


def test_versions_of_the_environment_before_are_kept_where_they_fit(shell, tmp_path):
    frozen = 'case "$*" in *freeze*) echo "iniconfig==1.0.0"; exit 0 ;; esac'
    facts = facts_of(shell, uvs=(fake_uv(tmp_path, frozen),))
    before = Image(pip=["iniconfig<2"])
    digest = digest_of(make_ready(shell, before, facts)[0].python)
    assert digest and digest_of("/root/miniconda3/envs/torch/bin/python") == ""
    (tmp_path / "calls").unlink()
    asyncio.run(ready(shell, facts, before.having(pip=["six"]), Told(), before=digest))
    asked = (tmp_path / "calls").read_text().splitlines()
    assert {"stdin: iniconfig==1.0.0", "stdin: iniconfig<2"} <= {*asked}
    assert any(line.startswith("stdin: six") for line in asked)


def test_where_packages_come_from_here_is_told_there(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://ours/simple")
    monkeypatch.setenv("UV_CACHE_DIR", "/of/this/machine")
    facts = facts_of(shell, uvs=(fake_uv(tmp_path),))
    make_ready(shell, Image(env={"UV_HTTP_TIMEOUT": "5"}), facts)
    lines = (tmp_path / "calls").read_text().splitlines()
    assert {"UV_EXTRA_INDEX_URL=https://ours/simple", "UV_HTTP_TIMEOUT=5"} <= {*lines}


@pytest.mark.extensive
def test_torch_is_taken_from_the_index_where_its_own_is_not_reached(shell, tmp_path):
    body = (
        'case "$*" in *--torch-backend=auto*) '
        'echo "error sending request for url (https://download.pytorch.org/whl/cu128/torch/)" >&2; '
        "exit 2 ;; esac"
    )
    facts = facts_of(shell, uvs=(fake_uv(tmp_path, body),))
    _, told = make_ready(shell, Image(pip=["torch"]), facts)
    assert "download.pytorch.org cannot be reached: trying without it" in told.text()
    calls = [
        line for line in (tmp_path / "calls").read_text().splitlines() if "pip install" in line
    ]
    assert ["--torch-backend" in line for line in calls] == [True, False]


@pytest.mark.usefixtures("few_needs")
def test_uv_goes_along_once_and_nobody_else_reads_it(host, tmp_path):
    made, told = make_ready(host, Image(), facts_of(host, uvs=()))
    path = tmp_path / f"home/.cache/skyward_nb/uv/{uv_version()}/uv"
    assert path.stat().st_mode & 0o777 == 0o700
    assert "sending uv" in told.text()
    cache = tmp_path / "home/.cache/skyward_nb"
    paths = [cache, *cache.iterdir(), *cache.glob("*/*")]
    assert {cache, Path(made.python).parents[1], Path(made.package)} <= {*paths}
    assert not [each for each in paths if each.stat().st_mode & 0o077], "nobody else reads it"
    told = Told()
    # Its own Python may be of another minor than this one.
    facts = replace(asyncio.run(probe(host)), pythons=facts_of(host).pythons)
    asyncio.run(ready(host, facts, Image(pip=["six"]), told))
    assert "sending uv" not in told.text()


@pytest.mark.extensive
@pytest.mark.usefixtures("few_needs")
def test_uv_is_fetched_for_another_kind_of_machine(host, tmp_path):
    facts = facts_of(host, libc="musl 1.2.5", uvs=())
    made, told = make_ready(host, Image(), facts)
    assert "fetching uv" in told.text()
    path = tmp_path / f"home/.cache/skyward_nb/uv/{uv_version()}/uv"
    assert subprocess.run([path, "--version"], capture_output=True).returncode == 0
    assert folders(path.parent.parent) == [uv_version()]
    assert there(made, "import msgspec; print('well')") == "well"


def test_uv_that_cannot_be_had_is_told_with_what_to_do(tmp_path):
    shell = shell_at(
        tmp_path / "home",
        HTTPS_PROXY="http://127.0.0.1:9",
        PIP_INDEX_URL="https://127.0.0.1:9/simple",
        PIP_CONFIG_FILE="/dev/null",
        PIP_FIND_LINKS="",
        PIP_RETRIES="0",
    )
    text = refused(shell, Image(), facts_of(shell, libc="musl 1.2.5", uvs=()))
    assert f"uv {uv_version()}, which makes its environment, could not be fetched there" in text
    assert "musl 1.2.5" in text
    assert folders(tmp_path / "home/.cache/skyward_nb/uv") == []


def test_too_few_open_files_are_told_and_nothing_else_is_tried(shell, tmp_path):
    """In the words of uv with `ulimit -n 64`."""
    words = (
        "Request failed after 3 retries for url (https://pypi.org/simple/nbconvert/) "
        "cause: Too many open files (os error 24) at path /tmp/.tmpQLa3bv/wheels-v8/.tmpdqDaLg"
    )
    body = f"""case "$1 $2" in "pip install") echo '{words}' >&2; exit 2 ;; esac"""
    text = refused(shell, Image(), facts_of(shell, uvs=(fake_uv(tmp_path, body),)))
    assert "it allows fewer open files than uv needs" in text
    assert len(uv_calls(tmp_path, "pip install")) == 1
