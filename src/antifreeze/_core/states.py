"""What all states have in common, and those of a whole run."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """A member of a state machine. Members are single objects, so identity is their hash.

    (Enum hashes the member's name, in Python: a third of the cost of a transition.)
    """

    __hash__ = object.__hash__


class Run(State):
    IDLE = "idle"  # no epoch yet
    RUNNING = "running"
    FINISHED = "finished"  # the epoch is over
    BROKEN = "broken"  # a fault ended the run; what is loaded is still delivered
    CLOSED = "closed"


class Loop(State):
    AWAY = "away"  # busy with its own work
    LEFT = "left"  # ... and somebody else tells what happens
    WAITING = "waiting"  # inside `next`


class Sampling(State):
    MORE = "more"
    ASKED = "asked"  # a draw is on its way
    ENDED = "ended"
