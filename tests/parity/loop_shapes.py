"""Every way to loop over a loader that we have seen in programs, by name."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import torch

Seen = list[Any]
Shape = Callable[[Any, dict[str, Any]], Seen]


class Plain:
    """Passes everything on, as wrappers of loaders do."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


class Bar:
    """Loops in a generator of its own, as progress bars do."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        yield from self.iterable


class Prefetcher:
    """Is always one batch ahead."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        self.it = iter(self.loader)
        ahead = next(self.it, None)
        while ahead is not None:
            now, ahead = ahead, next(self.it, None)
            yield now


def whole(loader: Any, kept: dict[str, Any]) -> Seen:
    return list(loader)


def left_early(loader: Any, kept: dict[str, Any]) -> Seen:
    seen = []
    for batch in loader:
        seen.append(batch)
        if len(seen) == 2:
            break
    return seen


def bound(make: Callable[[Any], Any], stop: int | None = 2) -> Shape:
    """Keep what loops in a variable, and leave it in the middle."""

    def shape(loader: Any, kept: dict[str, Any]) -> Seen:
        kept["loop"] = make(loader)
        return list(itertools.islice(kept["loop"], stop))

    return shape


def raises_in_the_middle(loader: Any, kept: dict[str, Any]) -> Seen:
    seen = []
    try:
        for batch in loader:
            seen.append(batch)
            if len(seen) == 3:
                raise ValueError
    except ValueError as error:
        kept["error"] = error  # as a notebook does
    return seen


def nested(loader: Any, kept: dict[str, Any]) -> Seen:
    return [(outer, inner) for outer in loader for inner in loader]


def nested_and_left(loader: Any, kept: dict[str, Any]) -> Seen:
    seen = []
    for outer in loader:
        for inner in loader:
            seen.append((outer, inner))
            break
        if len(seen) > 20:
            break
    return seen


def zipped_with_itself(loader: Any, kept: dict[str, Any]) -> Seen:
    return list(zip(loader, loader, strict=False))


def two_by_name(loader: Any, kept: dict[str, Any]) -> Seen:
    one, other = iter(loader), iter(loader)
    return [next(one), next(one), next(other), next(one), *other, *one]


def generator_that_waits(loader: Any, kept: dict[str, Any]) -> Seen:
    waiting = (batch for batch in loader)
    return [next(waiting), list(loader), list(waiting)]


def goes_on_with_an_older_one(loader: Any, kept: dict[str, Any]) -> Seen:
    seen = []
    if "older" in kept:
        seen += [next(kept["older"], None), next(kept["older"], None)]
    kept["older"] = iter(loader)
    return [*seen, next(kept["older"])]


def two_tasks(loader: Any, kept: dict[str, Any]) -> Seen:
    seen: Seen = []

    async def loop(name: str) -> None:
        for batch in loader:
            seen.append((name, batch))
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(loop("one"), loop("other"))

    asyncio.run(both())
    return seen


def asynchronous_generators(loader: Any, kept: dict[str, Any]) -> Seen:
    async def batches() -> AsyncIterator[Any]:
        for batch in loader:
            yield batch
            await asyncio.sleep(0)

    async def some() -> Seen:
        one, other = batches(), batches()
        seen = [await anext(one), await anext(other), await anext(one)]
        await one.aclose()
        seen += [each async for each in other]
        return seen

    return asyncio.run(some())


SHAPES: dict[str, Shape] = {
    "a whole epoch": whole,
    "a loop that is left": left_early,
    "the first batch": lambda loader, kept: [next(iter(loader))],
    "enumerate, kept": bound(enumerate),
    "a bar around enumerate, kept": bound(lambda loader: iter(Bar(enumerate(loader)))),
    "enumerate of a bar, kept": bound(lambda loader: enumerate(Bar(loader))),
    "zip, kept": bound(lambda loader: zip(range(50), loader, strict=False)),
    "map, kept": bound(lambda loader: map(str, loader)),
    "iter, kept": bound(iter),
    "iter, kept to its end": bound(iter, None),
    "islice, kept": bound(lambda loader: itertools.islice(loader, 4)),
    "cycle": bound(itertools.cycle, 9),
    "zip_longest": bound(lambda loader: itertools.zip_longest(loader, range(3)), None),
    "tee": bound(lambda loader: zip(*itertools.tee(loader), strict=True), 3),
    "chain": bound(lambda loader: itertools.chain(loader, loader), 8),
    "a wrapper": bound(lambda loader: iter(Plain(loader))),
    "a prefetcher": bound(lambda loader: iter(Prefetcher(loader)), 3),
    "an error in the body": raises_in_the_middle,
    "nested loops": nested,
    "nested loops that are left": nested_and_left,
    "zipped with itself": zipped_with_itself,
    "two iterators": two_by_name,
    "a generator that waits": generator_that_waits,
    "an older iterator": goes_on_with_an_older_one,
    "two tasks": two_tasks,
    "asynchronous generators": asynchronous_generators,
}


def plain(seen: Any) -> Any:
    if isinstance(seen, torch.Tensor):
        return seen.tolist()
    return [plain(each) for each in seen] if isinstance(seen, list | tuple) else seen
