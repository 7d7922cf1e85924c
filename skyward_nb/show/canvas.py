"""Where a notebook draws a view: as widgets that change, or as one bundle that is replaced.

However it is shown while it runs, in the end the notebook keeps one bundle: HTML that needs no
script, plain text, and the record for front ends of their own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from skyward_nb.compat.ipywidgets_private import bundle_of
from skyward_nb.picture import page, rank_table, style_sheet
from skyward_nb.picture.figure_grid import grid_columns, in_order
from skyward_nb.picture.record import MIME, as_json
from skyward_nb.picture.text import as_text
from skyward_nb.protocol.events import Display, Output
from skyward_nb.show.kept_pictures import keep
from skyward_nb.show.kernel_status import BusyStatus
from skyward_nb.show.lab_cell import LabCell
from skyward_nb.view.run_view import DisplayedObject, Entry, OutputLine, RunView, open_lines

LIVE_LINES = 30
LIVE_LETTERS = 400
_LIVE_FIGURES, _MOST_LIVE_FIGURES = 4, 16
_MOST_TABS = 16
_CURVES_PERIOD = 0.5
_SLOW_PERIOD = 1.0
_FLOW = 500
_FLOW_PERIOD = 0.5
_LEAST_KEPT = 0.25
_KEPT_PERIOD = 2.0
_MOST_KEPT_PERIOD = 30.0
_MOST_ENDED = 4
_MOST_PLAIN = 10_000
_NOTHING = {"text/html": "", "text/plain": ""}
_NO_MARK: Mapping[str, Any] = {}


class Canvas(Protocol):
    """Where a view can be drawn."""

    period: float
    """Seconds between two drawings."""

    @property
    def waits(self) -> bool:
        """Whether something is to be drawn though nothing more came."""
        ...

    def draw(self, view: RunView) -> None:
        """Show the view, replacing what was shown before; for good when it has ended."""
        ...

    def output(self, event: Output | Display) -> None:
        """Something of a rank has come."""
        ...


def bundle(view: RunView) -> dict[str, Any]:
    """What the notebook keeps of a view: all lines in its HTML, where there are many there alone."""
    text = as_text(view, most=_MOST_PLAIN)
    record = as_json(view, in_html=True)
    return {"text/html": page.as_html(view), "text/plain": text, MIME: record}


def as_of_now(view: RunView) -> RunView:
    """A view that goes on, with the time at which it was as it is here."""
    if view.ended is not None:
        return view
    at = time.strftime("%H:%M:%S", time.localtime(view.wall + view.now))
    again = f"; %sky show run={view.run} draws it as it is now" if view.run else ""
    return replace(view, notes=(*view.notes, f"Drawn at {at}{again}"))


def tail(view: RunView, rank: int | None = None) -> list[OutputLine | str]:
    """The last lines, of all ranks or of one, and a remark on those above."""
    lines: list[OutputLine | str] = []
    hidden = False
    for entry in _backwards(view):
        if isinstance(entry, OutputLine) and (rank is None or rank in entry.ranks):
            if len(lines) == LIVE_LINES:
                hidden = True
                break
            lines.append(entry)
    if hidden or view.cut:
        lines.append("… lines above are shown when the cell ends")
    lines.reverse()
    return [
        replace(line, text=f"{line.text[:LIVE_LETTERS]} …")
        if isinstance(line, OutputLine) and len(line.text) > LIVE_LETTERS + 2
        else line
        for line in lines
    ]


def _backwards(view: RunView) -> Iterator[Entry]:
    yield from reversed(open_lines(view))
    yield from reversed(view.entries)


class BundleCanvas:
    """One display of the running cell, replaced as it goes: for front ends without widgets.

    As nobody may be looking it is drawn seldom, and only with the last of the output.
    """

    period = _SLOW_PERIOD
    waits = False

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, view: RunView) -> None:
        """Publish the bundle."""
        data = bundle(_short(view)) if view.ended is None else _last(view)
        self._handle = _published(data, self._handle)

    def output(self, event: Output | Display) -> None:
        """Nothing: the view holds it."""


def _last(view: RunView) -> dict[str, Any]:
    """The bundle of a view that has ended, which is kept on disk, too.

    Short runs that ended well are not: writing takes a fifth of a millisecond, and their pool knows them.
    """
    data = bundle(view)
    if view.run and (view.took >= _LEAST_KEPT or view.state != "finished"):
        keep(view.run, bundle(alone(view)) if view.short_headline else data)
    return data


def alone(view: RunView) -> RunView:
    """A view with its whole message, as no traceback stands below it."""
    return replace(view, short_headline="")


def _published(data: dict[str, Any], handle: Any, mark: Mapping[str, Any] = _NO_MARK) -> Any:
    """Display a bundle, or put it in the place of the one with this handle; returns the handle."""
    from IPython.display import display

    if handle is None:
        return display(data, raw=True, display_id=True, transient={**mark})
    handle.update(data, raw=True, transient={**mark})
    return handle


def _short(view: RunView) -> RunView:
    """The view with the last of its output alone."""
    last = view.entries[-LIVE_LINES:]
    hidden = sum(len(e.ranks) for e in view.entries[:-LIVE_LINES] if isinstance(e, OutputLine))
    return replace(view, entries=last, cut=view.cut + hidden, gap=0)


class WidgetCanvas:
    """Stock widgets while it runs, of which only what changed is sent; a bundle in the end.

    In a `cell` of Lab the bundle stands beside the widgets from the beginning, out of sight, and is renewed
    now and then: a front end that has no widgets (any more) shows the last known picture.
    """

    period: float = 0.1

    def __init__(self, status: BusyStatus, cell: LabCell | None = None) -> None:
        self._status = status
        self._cell = cell
        self._handle: Any = None
        self._live: Any = None
        self._parts: _Widgets | None = None
        self._made = 0
        self._due = 0.0

    @property
    def waits(self) -> bool:
        """Whether the kernel's status is to be said again."""
        return self._parts is not None and self._status.is_due(time.monotonic())

    def draw(self, view: RunView) -> None:
        """Change the widgets; when the view has ended, put the bundle in their place."""
        if view.ended is not None:
            self._end(view)
        elif self._handle is None:
            cell = self._cell
            self._parts = _Widgets(style_sheet.live_alone(cell.name) if cell else "")
            self._parts.renew(view)
            if cell is not None:
                self._show_kept(view, cell, self._parts)
                self._live = _published({**self._parts.bundle(), **_NOTHING}, None)
                cell.has_shown()
            else:
                self._handle = _published({**self._parts.bundle(), **bundle(_short(view))}, None)
        elif self._parts is not None:
            self._parts.renew(view)
            if self._cell is not None and view.took >= self._due:
                self._show_kept(view, self._cell, self._parts)
        if self._parts is not None:
            now = time.monotonic()
            if self._parts.made > self._made:
                self._made = self._parts.made
                self._status.widgets_made(now)
            self._status.say_if_due(now)

    def _show_kept(self, view: RunView, cell: LabCell, parts: _Widgets) -> None:
        """Show a bundle that says how old it is, hidden while the widgets are there."""
        self._due = view.took + min(max(view.took, _KEPT_PERIOD), _MOST_KEPT_PERIOD)
        data = bundle(as_of_now(_short(view)))
        begin = f'{style_sheet.dead_hidden(cell.name)}<div class="{cell.name}">'
        data["text/html"] = f"{begin}{data['text/html']}</div>"
        self._handle = _published(data, self._handle, cell.mark(parts.model_id))

    def _end(self, view: RunView) -> None:
        data, cell = _last(view), self._cell
        if cell is not None and view.run:
            cell.keep_value_of(view.run)
        is_taken_back = self._live is not None and cell is not None and cell.take_back()
        handle = None if is_taken_back else self._handle
        self._handle = _published(data, handle, cell.mark() if cell else {})
        if self._parts is None:
            return
        if self._live is None or cell is None:
            self._parts.close()
        else:
            if not is_taken_back:
                self._live.update(_NOTHING, raw=True)
            # A page that was opened in mid-run may have the widgets alone: no display reaches it.
            self._parts.end(data["text/html"] + style_sheet.live_alone(cell.name))
            _ended.append(self._parts)
            if len(_ended) > _MOST_ENDED:
                _ended.popleft().close()
        self._parts = None

    def output(self, event: Output | Display) -> None:
        """Nothing: the view holds it."""


_ended: deque[_Widgets] = deque()
"""The widgets of the last runs that ended."""


class _Widgets:
    """The live picture in stock widgets: HTML pieces, each sent when it has changed, in a VBox.

    Whose lines are shown is chosen by radio buttons and a style sheet, as in what is kept: a
    stock Tab cannot be switched by keyboard in JupyterLab.
    """

    def __init__(self, style: str = "") -> None:
        import ipywidgets

        self._new = ipywidgets
        self._layout = ipywidgets.Layout(margin="0", padding="0")
        self._style: Any = None
        self._curves_due = 0.0
        self._all: list[Any] = []
        self._head, self._curves, self._foot = self._html(), self._html(), self._html()
        self._panes: dict[int | None, Any] = {}
        self._panes_due, self._lines = 0.0, 0
        self._tabs: Any = None
        self._figures: list[tuple[DisplayedObject, Any]] = []
        self._gallery: Any = None
        frame = ipywidgets.Layout(border=style_sheet.EDGE, max_width="960px", overflow="hidden")
        styles = self._html(style_sheet.STYLE + style)
        self._box = ipywidgets.VBox([styles, self._head, self._curves], layout=frame)
        self._box.add_class("sky-live")
        self._all += [self._box, frame, self._layout, self._style]

    @property
    def made(self) -> int:
        """How many widgets were made."""
        return len(self._all)

    @property
    def model_id(self) -> str:
        """By what pages know them."""
        return self._box.model_id

    def bundle(self) -> dict[str, Any]:
        """The MIME type by which a front end shows them."""
        return bundle_of(self._box)

    def renew(self, view: RunView) -> None:
        """Say what has changed."""
        self._put(self._head, page.head(view) + rank_table.ranks(view) + page.live_marks(view))
        now = time.monotonic()
        if now >= self._curves_due:
            self._put(self._curves, page.curves(view))
            # Drawing many curves is work: never more than a tenth of the time.
            took = time.monotonic() - now
            self._curves_due = now + max(_CURVES_PERIOD, 10 * took)
        self._renew_output(view)
        self._renew_figures(view)
        self._put(self._foot, page.foot(view))
        parts = [*self._box.children[:3], *([self._tabs] if self._tabs else [])]
        parts += [*self._panes.values(), *([self._gallery] if self._gallery else []), self._foot]
        if len(parts) != len(self._box.children):
            self._box.children = parts

    def _renew_output(self, view: RunView) -> None:
        if not self._panes and (view.entries or open_lines(view)):
            self._panes[None] = self._pane("all")
            if 1 < len(view.ranks) <= _MOST_TABS:
                self._tabs = self._html()
                self._put(self._tabs, page.live_tabs(view))
                self._panes |= {rank: self._pane(str(rank)) for rank in sorted(view.ranks)}
        now, lines = time.monotonic(), view.cut + len(view.entries)
        if now < self._panes_due:
            return
        # What flows by faster than it can be read is shown less often.
        flows = lines - self._lines > _FLOW
        self._panes_due, self._lines = now + (_FLOW_PERIOD if flows else 0.0), lines
        for rank, pane in self._panes.items():
            self._put(pane, page.lines_html(tail(view, rank)))

    def _pane(self, name: str) -> Any:
        pane = self._html()
        pane.add_class("sky-pane")
        pane.add_class(f"sky-pane-{name}")
        return pane

    def _renew_figures(self, view: RunView) -> None:
        """The last figures in the order of ranks, each sent once."""
        most = min(max(_LIVE_FIGURES, len(view.ranks)), _MOST_LIVE_FIGURES)
        figures = [entry for entry in view.entries if isinstance(entry, DisplayedObject)]
        last = in_order(figures[-most:])
        if [id(entry) for entry, _ in self._figures] == [id(entry) for entry in last]:
            return
        if self._gallery is None:
            grid = self._new.Layout(margin="0", padding="0 0 0 12px")
            self._gallery = self._new.GridBox(layout=grid)
            self._all.append(self._gallery)
        panes = {id(entry): pane for entry, pane in self._figures}
        spare = [pane for entry, pane in self._figures if all(entry is not each for each in last)]
        self._figures = []
        for entry in last:
            if (pane := panes.get(id(entry))) is None:
                pane = spare.pop() if spare else self._html()
                self._put(pane, page.shown(entry))
            self._figures.append((entry, pane))
        columns = grid_columns(len({entry.ranks for entry in last}))
        self._gallery.layout.grid_template_columns = columns
        self._gallery.children = [pane for _, pane in self._figures]

    def _html(self, value: str = "") -> Any:
        style = {"style": self._style} if self._style else {}
        widget = self._new.HTML(value, layout=self._layout, **style)
        self._style = widget.style
        self._all.append(widget)
        return widget

    def _put(self, widget: Any, text: str) -> None:
        value = f'<div class="sky-run live">{text}</div>' if text else ""
        if widget.value != value:
            widget.value = value

    def end(self, page: str) -> None:
        """Show the last picture, in one piece."""
        last = self._html(page)
        kept = {self._box, self._box.layout, last}
        self._box.layout.border = "none"
        self._box.children = [last]
        for widget in self._all:
            if widget not in kept and isinstance(widget, self._new.HTML):
                widget.close()
        self._all = [*kept, self._layout, self._style]

    def close(self) -> None:
        """Take them away, here and in the front end."""
        # A closed widget leaves its layout and style open.
        for widget in self._all:
            for each in (widget, *(getattr(widget, name, None) for name in ("layout", "style"))):
                if each is not None:
                    each.close()
