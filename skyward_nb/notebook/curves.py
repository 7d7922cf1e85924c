"""Curves. (Being built.)"""


def suits_log(by_rank):
    return False


def curve(name, by_rank, *, is_log=False, width=420, height=150):
    return f"<i>{name}</i>"
