"""tqdm's bars as bars of the rank, whichever of its flavours makes them.

tqdm goes on counting and timing by itself, and so costs what it costs; only where it would draw,
we tell. Its classes are patched in place, so that what is a tqdm stays one, subclasses too.
"""

from __future__ import annotations

import operator
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from skyward_nb.compat.tqdm_private import unwrapped
from skyward_nb.runtime import event_sink
from skyward_nb.runtime.hooks import Changes, careful, is_console, is_shown
from skyward_nb.runtime.loops import PERIOD, Loop, numbers_in
from skyward_nb.runtime.progress import log_beside_a_bar, number, words

_SHOWN = "_skyward_shown"
_FILE_AT = 4
# What a flavour takes beside what tqdm does, and draws with.
_ONLY_FOR_DRAWING = ("display", "progress", "options", "grab", "tk_parent", "cancel_callback")
_DRAWING = ("display", "close", "reset", "update", "__iter__")
_DRAWING_TOO = ("set_description", "set_description_str")
_all: weakref.WeakSet[_Shown] = weakref.WeakSet()
_all_lock = threading.Lock()


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch `tqdm.std`, or one of the flavours that draw by other means than text."""
    if module.__name__ == "tqdm.std":
        _patch_text(module.tqdm, changes)
        return
    flavour: Any = module.tqdm
    if not hasattr(flavour, _SHOWN):
        raise LookupError("tqdm.std is not as expected")
    changes.put(flavour, "__init__", _made_without_drawing(flavour, vars(flavour)["__init__"]))
    for name in (*_DRAWING, *_DRAWING_TOO):
        if name in vars(flavour):
            changes.put(flavour, name, _without_drawing(flavour, name, vars(flavour)[name]))


def settle(*, closing: bool) -> None:
    """Have every bar that goes on tell how far it is; or close it."""
    with _all_lock:
        everything = list(_all)
    for shown in everything:
        if (bar := shown.bar()) is not None and not bar.disable:
            with careful("tqdm"):
                if closing:
                    bar.close()
                else:
                    shown.tell(bar)


class _Shown:
    """One of tqdm's bars as it is shown; nothing until tqdm would draw it first."""

    def __init__(self, bar: Any) -> None:
        self.bar: Callable[[], Any] = weakref.ref(bar)
        self._loop: Loop | None = None
        self._seen: tuple[object, ...] = ()
        self._timer: threading.Timer | None = None
        with _all_lock:
            _all.add(self)

    def look(self, bar: Any) -> None:
        """Where tqdm would draw: tell, now or within a tenth of a second."""
        if not is_shown():
            return  # a child that was forked while this went on
        with careful("tqdm"):
            seen = _state(bar)
            loop = self._loop
            if loop is None or event_sink.run() > loop.run:
                self.tell(bar)
            elif seen == self._seen:
                return
            elif loop.is_due():
                self.tell(bar)
            elif self._timer is None:
                # Nothing may be drawn for long after this, so what is true now must be told.
                self._timer = threading.Timer(PERIOD, self._tell_late)
                self._timer.daemon = True
                self._timer.start()
            self._seen = seen

    def tell(self, bar: Any) -> None:
        """Tell what tqdm knows now, if it is something new."""
        before = self._loop, self._told()
        if self._is_of_before(bar):
            return
        self._seen = _state(bar)
        loop = self._take(bar, bar.format_dict)
        if loop is before[0] and self._told() != before[1]:
            loop.tell()

    def _is_of_before(self, bar: Any) -> bool:
        """Whether an earlier run left it open, and nothing was done with it since."""
        if self._loop is None or event_sink.run() <= self._loop.run:
            return False
        return self._seen == _state(bar)

    def end(self, bar: Any) -> None:
        """Tell that tqdm has closed it; of one that was never to be drawn, nothing."""
        with careful("tqdm"):
            if self._loop is None:
                return
            # One of an earlier run, closed or forgotten now, is not this run's.
            if event_sink.run() <= self._loop.run:
                self._take(bar, bar.format_dict)
            self._loop.end()

    def _told(self) -> tuple[object, ...]:
        loop = self._loop
        return () if loop is None else (loop.done, loop.total, loop.text, loop.note)

    def _take(self, bar: Any, fields: dict[str, Any]) -> Loop:
        """Take what tqdm draws from, as a subclass may have changed it."""
        scale = fields.get("unit_scale")
        scale = 1 if scale is True or not scale else scale
        total, done = fields.get("total"), number((fields.get("n") or 0) * scale) or 0
        total = None if total is None else number(total * scale)
        skipped = number((fields.get("initial") or 0) * scale) or 0
        text = words((fields.get("prefix") or "").rstrip().removesuffix(":"))
        unit = words(fields.get("unit") or "")
        keeping = bar.pos == 0 if bar.leave is None else bool(bar.leave)
        note = words(fields.get("postfix") or "")
        if self._loop is not None and event_sink.run() > self._loop.run:
            # What an earlier run left open is, when it goes on, a loop of the run that goes on.
            self._loop.end()
            self._loop = None
        if self._loop is None:
            self._loop = Loop(
                total, text, unit=unit, keeping=keeping, done=done, skipped=skipped, note=note
            )
        loop = self._loop
        loop.be_in(unit, keeping=keeping)
        loop.done, loop.total, loop.text, loop.note = done, total, text, note
        loop.skipped = skipped
        loop.be_as_old_as(fields.get("elapsed") or 0.0)
        return loop

    def _tell_late(self) -> None:
        self._timer = None
        bar = self.bar()
        if bar is not None and not bar.disable:
            with careful("tqdm"):
                self.tell(bar)


def _state(bar: Any) -> tuple[object, ...]:
    """What changes when something is done with it."""
    return bar.n, bar.total, bar.desc, bar.postfix


class _Silence:
    """Stands in for the console: what tqdm draws there is not needed."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str, /) -> int:
        """Nothing."""
        return len(text)

    def flush(self) -> None:
        """Nothing."""


# ── text ────────────────────────────────────────────────────────────────────────────────


def _patch_text(text_bar: Any, changes: Changes) -> None:
    """Patch the class that all others are made from."""
    methods = vars(text_bar)
    changes.put(text_bar, _SHOWN, None)
    changes.put(text_bar, "__init__", _made_silent(methods["__init__"]))
    changes.put(text_bar, "display", _display(methods["display"]))
    changes.put(text_bar, "refresh", _refresh(methods["refresh"]))
    changes.put(text_bar, "close", _close(methods["close"]))
    changes.put(text_bar, "set_postfix", _set_postfix(methods["set_postfix"]))


def _made_silent(make: Any) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        # What tqdm has here may be a partial method, with defaults from the environment.
        make_bound = make.__get__(self, type(self))
        stream = _file_of(args, kwargs)
        if not (is_shown() and is_console(unwrapped(stream))):
            make_bound(*args, **kwargs)
            return
        args, kwargs = _with_file(args, kwargs, _Silence(stream))
        self._skyward_shown = shown = _Shown(self)
        make_bound(*args, **kwargs)
        if self.disable:
            self._skyward_shown = None
        elif getattr(self, "delay", 0) <= 0:
            shown.look(self)

    return __init__


def _display(display: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._skyward_shown is None:
            return display(self, *args, **kwargs)
        if not self.disable:
            self._skyward_shown.look(self)
        return True

    return method


def _refresh(refresh: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = refresh(self, *args, **kwargs)
        if self._skyward_shown is not None and not self.disable:
            # A subclass may display by means of its own alone.
            self._skyward_shown.look(self)
        return answer

    return method


def _set_postfix(set_postfix: Callable[..., None]) -> Callable[..., None]:
    """Metrics beside a bar are curves, too; counters, which are whole numbers, are none."""

    def method(self: Any, ordered_dict: Any = None, refresh: bool = True, **kwargs: Any) -> None:
        set_postfix(self, ordered_dict, refresh, **kwargs)
        if getattr(self, _SHOWN, None) is not None and not self.disable:
            with careful("tqdm"):
                values = {**(ordered_dict or {}), **kwargs}
                found = numbers_in({k: v for k, v in values.items() if not _is_whole(v)})
                log_beside_a_bar({words(name): value for name, value in found.items()})

    return method


def _is_whole(value: object) -> bool:
    try:
        int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _close(close: Callable[..., None]) -> Callable[..., None]:
    def method(self: Any) -> None:
        shown = None if getattr(self, "disable", True) else self._skyward_shown
        close(self)
        if shown is not None:
            shown.end(self)

    return method


def _file_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    file = args[_FILE_AT] if len(args) > _FILE_AT else kwargs.get("file")
    return sys.stderr if file is None else file


def _with_file(
    args: tuple[Any, ...], kwargs: dict[str, Any], file: object
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if len(args) > _FILE_AT:
        return (*args[:_FILE_AT], file, *args[_FILE_AT + 1 :]), kwargs
    return args, {**kwargs, "file": file}


# ── other means than text ───────────────────────────────────────────────────────────────


def _made_without_drawing(flavour: Any, make: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if not is_shown() or kwargs.get("disable"):
            make(self, *args, **kwargs)
            return
        kwargs = {name: each for name, each in kwargs.items() if name not in _ONLY_FOR_DRAWING}
        # As `gui`, it has no text to begin with; these flavours heed no `file`, nor `disable=None`.
        kwargs |= {"gui": True, "disable": False}
        args, kwargs = _with_file(args, kwargs, sys.__stderr__)
        super(flavour, self).__init__(*args, **kwargs)

    return __init__


def _without_drawing(flavour: Any, name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._skyward_shown is None:
            return draw(self, *args, **kwargs)
        return getattr(super(flavour, self), name)(*args, **kwargs)

    return method
