"""Times as people read them."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """Seconds as a person reads them: `8 ms`, `3.1 s`, `12:07`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
