"""Calls in the background: `>` gives a `concurrent.futures.Future`, whose cancel stops the rank."""

import time
from concurrent.futures import CancelledError, as_completed

import skyward_nb as sky


@sky.function
def work(number, seconds):
    time.sleep(seconds)
    if number == 13:
        raise ValueError("an unlucky number")
    return number


with sky.Compute(nodes=4) as pool:
    futures = [work(number, 0.4 - number / 10) > pool for number in range(4)]
    print(f"in order: {[future.result() for future in futures]}")
    print(f"as they end: {sorted(each.result() for each in as_completed(futures))}")

    unlucky = work(13, 0) > pool
    print(f"failed: {unlucky.exception()!r}")

    endless = work(0, 3600) > pool.node(3)
    try:
        endless.result(timeout=0.5)
    except TimeoutError:
        print(f"cancelled: {endless.cancel()}")
    try:
        endless.result()
    except CancelledError:
        print(f"the rank is free: {work(5, 0) >> pool.node(3)}")

    both = (work(1, 0) & work(2, 0)) > pool
    print(f"both: {both.result()}")
    try:
        work(1, 3600).with_timeout(0.5) >> pool
    except sky.RunTimeout as error:
        print(f"timeout: {str(error).splitlines()[0]}")
