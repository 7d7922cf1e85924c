"""The Jupyter server's half of the Lab extension: this user's pools as JSON, and actions on them.

It reads the registry, as `skyward-nb status` does, and never speaks to a kernel: a poll costs a kernel that is
busy nothing. A pool that a kernel conducts is ended there, by the front end. The browser's half is `labextension/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__ = ["_jupyter_server_extension_points", "_load_jupyter_server_extension"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "skyward_nb.lab"}]


def _load_jupyter_server_extension(server_app: ServerApp) -> None:
    from skyward_nb.lab.routes import routes

    web_app = server_app.web_app
    web_app.add_handlers(".*$", routes(web_app.settings["base_url"]))
