"""A JupyterLab server for tests, which shares nothing with the user's own.

Folders, token and port are made for the tests, and gone with them.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from free_ports import free_port

import skyward_nb
from lab.apart import Apart
from skyward_nb.kernel import kernelspecs

BUILT = Path(__file__).parents[2] / "labextension/built"
"""The browser's half of the Lab extension."""

# Of Lab, what asks other machines for something, what only costs time here, and what then misses
# one of these and says so.
_DISABLED = (
    "@jupyterlab/apputils-extension:announcements",
    "@jupyterlab/extensionmanager-extension",
    "@jupyterlab/fileeditor-extension:language-server",
    "@jupyterlab/lsp-extension",
    "@jupyterlab/notebook-extension:language-server",
    "@jupyterlab/terminal-extension",
)
RENDERER = "skyward-nb:record"
"""Ours, off but for the tests of it: the others see what people without the extension see."""

_SERVER_CONFIG = {
    "ServerApp": {
        "ip": "127.0.0.1",
        "allow_root": True,
        "open_browser": False,
        "terminals_enabled": False,
        "jpserver_extensions": {
            "jupyter_lsp": False,
            "jupyter_server_terminals": False,
            "skyward_nb.lab": True,
        },
        # Else each page that is opened asks yarn whether Lab is to be built anew.
        "tornado_settings": {"page_config_data": {"buildAvailable": False, "buildCheck": False}},
    },
    # A kernel that a test forgot is seen as a leak, not culled.
    "MappingKernelManager": {"cull_idle_timeout": 0},
    "JupyterNotebookApp": {"expose_app_in_browser": True},
    "LabApp": {
        "expose_app_in_browser": True,
        "news_url": None,
        "check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "extension_manager": "readonly",
    },
}


@dataclass(frozen=True)
class LabServer:
    """A running JupyterLab: where it is, what opens it, and the folder it serves."""

    url: str
    token: str
    root: Path
    process: psutil.Process
    apart: Apart

    def ask(self, method: str, path: str) -> Any:
        """The server's answer to a request of its REST interface."""
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with self.apart.entered(), urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def kernels(self) -> list[str]:
        """Ids of the kernels that run."""
        return [kernel["id"] for kernel in self.ask("GET", "kernels")]

    def end_kernel_of(self, name: str) -> None:
        """Shut the kernel of a notebook down, as Lab's menu does; those of other pages stay, which are still in use."""
        for session in self.ask("GET", "sessions"):
            if session["path"] == name:
                # Answered once the kernel's process has ended.
                self.ask("DELETE", f"sessions/{session['id']}")

    def end_kernels(self) -> None:
        """Shut every kernel down, as Lab's menu does, and wait until their processes are gone."""
        for session in self.ask("GET", "sessions"):
            self.ask("DELETE", f"sessions/{session['id']}")
        for kernel in self.kernels():
            self.ask("DELETE", f"kernels/{kernel}")
        left = psutil.wait_procs(self.process.children(recursive=True), timeout=60)[1]
        assert not left, f"kernels that did not end: {left}"


@contextmanager
def lab_server(
    folder: Path, apart: Apart, python: str = sys.executable, module: str = "jupyterlab"
) -> Iterator[LabServer]:
    """JupyterLab below `folder`, or another `module` of an environment, ended and gone when the block is left."""
    token = secrets.token_hex(16)
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            apart.words(python, "-m", module, "--no-browser"),
            cwd=_make_root(
                folder, python, (RENDERER, *(_DISABLED if module == "jupyterlab" else ()))
            ),
            env=_environment(folder, token),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        with apart.entered():
            url = _wait_for_url(folder, process, log)
        server = LabServer(url, token, folder / "root", psutil.Process(process.pid), apart)
        yield server
        ended = process.poll()
        assert ended is None, f"JupyterLab ended by itself ({ended}):\n{log.read_text()[-3000:]}"
        server.end_kernels()
    finally:
        _end(process)


def _make_root(folder: Path, python: str, without: tuple[str, ...]) -> Path:
    """Fill the server's folders: its settings, its kernel, and an empty root for notebooks."""
    package = str(Path(skyward_nb.__file__).parents[1])
    search = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    spec = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"PYTHONPATH": search},
        "metadata": {"debugger": True},
    }
    served = {**_SERVER_CONFIG["ServerApp"], "port": free_port(), "root_dir": str(folder / "root")}
    _write(folder / "config/jupyter_server_config.json", {**_SERVER_CONFIG, "ServerApp": served})
    disabled = {"disabledExtensions": dict.fromkeys(without, True)}
    _write(folder / "config/labconfig/page_config.json", disabled)
    _write(folder / "path/kernels/python3/kernel.json", spec)
    # As it is in this tree, whatever was built when the package was installed.
    extensions = folder / "path/labextensions"
    extensions.mkdir()
    (extensions / "skyward-nb").symlink_to(BUILT)
    pool = kernelspecs.spec(kernelspecs.read(["--nodes", "2", "--prefix", str(folder)]))
    _write(
        folder / f"path/kernels/{kernelspecs.NAME}/kernel.json",
        {**pool, "argv": [python, *pool["argv"][1:]], "env": spec["env"]},
    )
    root = folder / "root"
    root.mkdir()
    return root


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _environment(folder: Path, token: str) -> dict[str, str]:
    """The environment of the server: folders of its own, and the token out of the command line."""
    apart = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "IPYTHONDIR": "ipython",
        # Before every other place, so that `python3` is this interpreter and no other.
        "JUPYTER_PATH": "path",
    }
    folders = {name: str(folder / part) for name, part in apart.items()}
    return {**os.environ, **folders, "JUPYTER_TOKEN": token}


def _wait_for_url(folder: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the server wrote down once it listens; another port may have won the race."""
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        for info in (folder / "runtime").glob("jpserver-*.json"):
            text = info.read_text()
            if text.endswith("}") and _answers(url := json.loads(text)["url"]):
                return url
        time.sleep(0.05)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}api", timeout=5):
            return True
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server, and whatever it has not ended itself."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    left = psutil.wait_procs(tree, timeout=60)[1]
    for each in left:
        each.kill()
    assert not left, f"JupyterLab left behind: {left}"
