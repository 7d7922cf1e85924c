"""`pool.map`: a function over many items, in order, in batches where they are quick."""

import skyward_nb as sky


@sky.function
def collatz(number):
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def power(base, exponent):
    return base**exponent


with sky.Compute(nodes=4) as pool:
    lengths = pool.map(collatz, range(1, 2001))
    print(f"longest below 2,001: {max(lengths)} steps from {lengths.index(max(lengths)) + 1}")
    print(f"as here: {lengths == [collatz.local(number) for number in range(1, 2001)]}")
    print(f"two arguments: {pool.map(power, [2, 3], [10, 3])}")
    try:
        pool.map(lambda x: 1 / x, [2, 1, 0])
    except ZeroDivisionError as error:
        print(f"failed: {error}; {error.__notes__[0]}")
