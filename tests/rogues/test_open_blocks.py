"""What a frame may hold by the blocks it stands in, told from its bytecode on every version."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from antifreeze._processes.fork_safety.open_blocks import may_hold

from .blocks import (
    FAST,
    LOCK,
    Client,
    Owner,
    Seen,
    Slotted,
    a_bare_except,
    an_error_turned_into_another,
    an_error_with_a_name,
    anything_to_raise_again,
    appends,
    assigned,
    both,
    captured,
    captured_from_around,
    chosen,
    chosen_the_other_way,
    either,
    else_releases,
    in_a_class,
    one_of_many,
    puts_back,
    raises_again_from_a_finally,
    rebound,
    rebound_by_a_loop,
    releases_after_another_try,
    releases_and_goes_on,
    releases_in_a_loop,
    releases_in_another_try,
    releases_when_another_try_fails,
    returns_from_a_finally,
    seen_in,
    sets,
)
from .shy import Enters, Makes, nobody_asked


@pytest.mark.parametrize(
    "function",
    [
        chosen,
        chosen_the_other_way,
        either,
        both,
        assigned,
        captured,
        captured_from_around,
        rebound,
        rebound_by_a_loop,
        Owner().rebound_attribute,
        Owner().attribute,
        in_a_class,
        one_of_many,
        else_releases,
        releases_after_another_try,
        releases_in_another_try,
        releases_when_another_try_fails,
        releases_in_a_loop,
        returns_from_a_finally,
        puts_back,
        sets,
        appends,
        anything_to_raise_again,
        a_bare_except,
        an_error_with_a_name,
        an_error_turned_into_another,
        raises_again_from_a_finally,
        releases_and_goes_on,
    ],
)
def test_a_lock_that_a_frame_shows_is_noticed(function: Callable[[Seen], None]) -> None:
    seen = seen_in(function)
    assert seen.held and seen.block is not None


# ---- nothing is held -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        Client().logs_and_goes_on,
        Client().logs_and_raises,
        Client().drains_and_raises,
        Client().raises_another,
        Client().raises_or_goes_on,
        Client().cleans_up_and_ends,
        Client().tells_of_its_end,
        Client().with_what_is_free,
        Client().with_arguments_that_are_chosen,
        Slotted().keeps,
    ],
)
def test_what_clients_of_services_do_holds_nothing(function: Callable[[Seen], None]) -> None:
    assert seen_in(function).block is None


# ---- the look itself does nothing ----------------------------------------------------------------


def test_objects_of_the_program_are_not_asked() -> None:
    shy, makes = object.__new__(Enters), Makes()

    def enters(look: Seen) -> None:
        with shy:
            look()

    def calls(look: Seen) -> None:
        with makes():
            look()

    def calls_at_last(look: Seen) -> None:
        try:
            look()
        finally:
            if FAST:
                shy.append(1)
                makes.clear()
                shy()

    with nobody_asked():
        for function in (enters, calls, calls_at_last):
            assert seen_in(function).block is not None


# ---- nothing is kept, and nothing is lost --------------------------------------------------------


class Thing:
    pass


def test_what_a_function_has_is_not_kept_by_a_look() -> None:
    def works(look: Seen, lock: Any = LOCK) -> None:
        item: Any = Thing()
        seen.append(weakref.ref(item))
        with lock:
            look()
            item = None
            seen.append(seen[0]())

    seen: list[Any] = []
    assert seen_in(works).block is not None
    assert seen[1] is None


def test_what_a_function_makes_of_its_locals_is_left_alone() -> None:
    def keeps(look: Seen, lock: Any = LOCK) -> None:
        first = 1
        mine = locals()
        with lock:
            look()
        kept.append((first, dict(mine)))

    def executes(look: Seen, lock: Any = LOCK) -> None:
        exec("made = 7", globals(), locals())
        with lock:
            look()
        if sys.version_info < (3, 13):  # later, each call makes a new dict
            kept.append(locals()["made"])

    kept: list[Any] = []
    assert seen_in(keeps).block is not None
    assert kept[0][0] == 1 and {"look", "lock", "first"} <= set(kept[0][1])
    assert seen_in(executes).block is not None
    assert kept[1:] in ([7], [])


def test_a_function_that_is_traced_keeps_its_variables() -> None:
    """A debugger waits inside of its trace function, and has all variables set anew after that."""

    def traced(look: Seen, lock: Any = LOCK) -> None:
        first = 1
        with lock:
            first += 1
        after.append((first, lock))

    def trace(frame: Any, what: str, _: Any) -> Any:
        if frame.f_code is traced.__code__:
            blocks.append(may_hold(frame))
            return trace
        return None

    after: list[Any] = []
    blocks: list[Any] = []
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        traced(Seen())
    finally:
        sys.settrace(before)
    assert after == [(2, LOCK)]
    assert any(each is not None for each in blocks)
