"""Generators stream: values come one by one, an exception in them arrives, and what is sent reaches them."""

import skyward_nb as sky


@sky.function
def squares(count):
    for number in range(count):
        yield number * number
    return "done"


@sky.function
def failing():
    yield 1
    raise ValueError("after the first")


@sky.function
def running_mean():
    total, count, mean = 0.0, 0, None
    while True:
        total += yield mean
        count += 1
        mean = total / count


@sky.function
def total(numbers):
    return sum(numbers)


def naturals(count):
    yield from range(count)


with sky.Compute(nodes=2) as pool:
    print(f"streamed: {list(squares(5) >> pool)}")
    print(f"on every rank: {[list(stream) for stream in squares(3) @ pool]}")
    for value in squares(10**9) >> pool:
        if value > 50:
            print(f"left at: {value}")
            break
    try:
        for value in failing() >> pool:
            print(f"came: {value}")
    except ValueError as error:
        print(f"then: {error}")
    mean = running_mean() >> pool
    next(mean)
    print(f"sent: {[mean.send(value) for value in (1.0, 2.0, 6.0)]}")
    mean.close()
    print(f"fed from here: {total(naturals(101)) >> pool}")
