"""code-server with the Jupyter extension for tests: folders, settings and a kernel of its own, gone with them.

`.ci/vscode` builds both.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from lab.apart import Apart
from waiting import until

import skyward_nb

_BUILT = Path(__file__).parents[2] / "build" / "vscode"
_ENTRY = _BUILT / "code-server/node_modules/code-server/out/node/entry.js"
_EXTENSIONS = ("ms-toolsai.jupyter", "ms-toolsai.jupyter-renderers")

# What asks other machines for something, what hides part of the window, and words of the
# document that are completed whatever the kernel knows.
_SETTINGS: dict[str, object] = {
    "chat.disableAIFeatures": True,
    "editor.wordBasedSuggestions": "off",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "afterDelay",
    "git.enabled": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "window.autoDetectColorScheme": True,
    "workbench.activityBar.location": "hidden",
    "workbench.enableExperiments": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


def missing() -> str:
    """Why there is no VS Code to be tested here; empty if there is."""
    if all((_BUILT / f"{part}.built").exists() for part in ("server", "renderers", "jupyter")):
        return ""
    return "VS Code is not built: make test-vscode does it"


@dataclass(frozen=True)
class CodeServer:
    """A running code-server: where it is, and the folder that it opens."""

    url: str
    root: Path


@contextmanager
def code_server(
    folder: Path, apart: Apart, settings: Mapping[str, object] | None = None
) -> Iterator[CodeServer]:
    """code-server below `folder`, ended with its kernels when the block is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root, file = folder / "root", folder / "user/User/settings.json"
    for each in (root, file.parent, folder / "home"):
        each.mkdir(parents=True)
    file.write_text(json.dumps(_SETTINGS | dict(settings or {})))
    (folder / "config.yaml").touch()
    # It keeps a list of them beside them.
    shutil.copytree(_BUILT / "extensions", folder / "extensions")
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            apart.words(str(_BUILT / "node/bin/node"), *_words(folder, port)),
            cwd=root,
            env=_environment(folder),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    server = CodeServer(f"http://127.0.0.1:{port}/", root)
    try:
        with apart.entered():
            until(lambda: _answers(server.url), told=log.read_text)
        yield server
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        _end(process)


def _words(folder: Path, port: int) -> list[str]:
    """The words after `node`."""
    proposed = [word for name in _EXTENSIONS for word in ("--enable-proposed-api", name)]
    return [
        str(_ENTRY),
        *("--auth", "none", "--bind-addr", f"127.0.0.1:{port}"),
        *("--config", str(folder / "config.yaml"), "--user-data-dir", str(folder / "user")),
        *("--extensions-dir", str(folder / "extensions")),
        *("--disable-telemetry", "--disable-update-check", "--disable-getting-started-override"),
        *proposed,
    ]


def _environment(folder: Path) -> dict[str, str]:
    """Without what a VS Code says to its terminals, and with one kernel: this interpreter's."""
    package = str(Path(skyward_nb.__file__).parents[1])
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"PYTHONPATH": package},
        "metadata": {"debugger": True},
    }
    kernel = folder / "path/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps(spec))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VSCODE_")}
    return kept | {
        # Which it would ask what is newer.
        "EXTENSIONS_GALLERY": '{"serviceUrl": ""}',
        "HOME": str(folder / "home"),
        "JUPYTER_PATH": str(folder / "path"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PATH": os.pathsep.join((str(_BUILT / "node/bin"), os.environ["PATH"])),
    }


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}healthz", timeout=5):
            return True
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with what it started: it keeps windows' extensions, and their kernels, for hours."""
    tree = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    for each in tree:
        if each.is_running():
            each.terminate()
    left = psutil.wait_procs(tree, timeout=10)[1]
    for each in left:
        each.kill()
    process.wait(10)
