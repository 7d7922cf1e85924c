"""What a rank's shell does with values and displays: the former go home, the latter are sent as events."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from skyward_nb.node.uplink import encodable
from skyward_nb.protocol.events import Clear, Display, Event
from skyward_nb.runtime import event_sink
from skyward_nb.words.bundles import fitting


class ValueHook(DisplayHook):
    """Prints nothing: the last expression's value goes home, not to the screen."""

    def __call__(self, result: object = None) -> None:
        """Keep the value of the cell's last expression."""
        if result is not None:
            self.fill_exec_result(result)


class RankDisplays(DisplayPublisher):
    """Sends what is displayed as events of the rank."""

    emit: Callable[[Event], None] | None = None
    rank = 0

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: object = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Send one MIME bundle; binary parts as base64, parts that are no text as JSON."""
        if self.emit is not None:
            name = (transient or {}).get("display_id")
            name = None if name is None else encodable(str(name))
            bundle = fitting({encodable(str(mime)): _as_text(part) for mime, part in data.items()})
            self.emit(Display(self.rank, bundle, name, bool(update), event_sink.run()))

    def clear_output(self, wait: bool = False) -> None:
        """Send that the rank's output so far is to be removed."""
        if self.emit is not None:
            self.emit(Clear(self.rank, bool(wait), event_sink.run()))


def _as_text(part: object) -> str:
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    if isinstance(part, str):
        return encodable(part)
    import json

    return json.dumps(part, default=str)
