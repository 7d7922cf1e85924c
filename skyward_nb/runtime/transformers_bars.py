"""transformers: the `Trainer`'s progress as bars on every rank, its logs as metrics.

Its bars are tqdm's, made on the first rank alone; here each rank makes them. The lines of logs that
they would print are metrics and the bar's note instead; `disable_tqdm=True` leaves the metrics, and
the lines.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from skyward_nb.runtime.hooks import Changes, careful, is_shown
from skyward_nb.runtime.loops import note_of, numbers_in, report

_NAMES = {"training_bar": "train", "prediction_bar": "evaluate"}
_ALONE = "predict"  # the callback does not hear which of the two it is
# What a run costs, which makes no curve.
_NO_CURVES = ("epoch", "total_flos")
_NO_CURVES_EITHER = ("_runtime", "_per_second", "_time")


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch the callbacks that draw and that log, and have `Trainer` use those."""
    if module.__name__ == "transformers.trainer":
        changes.put(module, "DEFAULT_PROGRESS_CALLBACK", module.ProgressCallback)
        return
    drawing: Any = module.ProgressCallback
    changes.put(drawing, "on_train_begin", _begun(_on_every_rank(drawing.on_train_begin)))
    for name in ("on_step_end", "on_prediction_step", "on_evaluate", "on_predict", "on_train_end"):
        changes.put(drawing, name, _on_every_rank(vars(drawing)[name]))
    changes.put(drawing, "on_log", _noted(vars(drawing)["on_log"]))
    handler: Any = module.CallbackHandler
    changes.put(handler, "on_log", _reported(vars(handler)["on_log"]))


def _on_every_rank(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the callback that draws, which draws where it is not the first process, too."""

    def method(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if not is_shown():
            return draw(self, args, state, control, **kwargs)
        first, bars = state.is_world_process_zero, _bars(self)
        state.is_world_process_zero = True
        try:
            answer = draw(self, args, state, control, **kwargs)
        finally:
            state.is_world_process_zero = first
        with careful("transformers"):
            _name(bars, _bars(self))
        return answer

    return method


def _begun(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Training that goes on from a checkpoint has its bar begin there, rather than jump."""

    def on_train_begin(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        answer = draw(self, args, state, control, **kwargs)
        if is_shown() and state.global_step:
            with careful("transformers"):
                bar = self.training_bar
                bar.n = bar.last_print_n = bar.initial = self.current_step = state.global_step
                bar.refresh()
        return answer

    return on_train_begin


def _bars(callback: Any) -> dict[str, Any]:
    return {name: getattr(callback, name, None) for name in _NAMES}


def _name(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Give new bars a name."""
    for name, bar in after.items():
        if bar is not None and bar is not before[name]:
            bar.unit = "step"
            nested = name == "training_bar" or after["training_bar"] is not None
            bar.set_description(_NAMES[name] if nested else _ALONE)


def _noted(write: Callable[..., Any]) -> Callable[..., Any]:
    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any = None, **kw: Any) -> Any:
        bar = getattr(self, "training_bar", None)
        if not is_shown():
            return write(self, args, state, control, logs=logs, **kw)
        if bar is not None:
            with careful("transformers"):
                bar.set_postfix_str(note_of(_curves(logs)))
        return None

    return on_log


def _reported(tell: Callable[..., Any]) -> Callable[..., Any]:
    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any, **kwargs: Any) -> Any:
        if is_shown():
            with careful("transformers"):
                report(_curves(logs), state.global_step)
        return tell(self, args, state, control, logs, **kwargs)

    return on_log


def _curves(logs: dict[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in numbers_in(logs).items()
        if name not in _NO_CURVES and not name.endswith(_NO_CURVES_EITHER)
    }
