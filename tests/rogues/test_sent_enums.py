"""Enum classes of the program's own, seen by workers of a clean process."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest

from .clean import ask


class Planet(enum.Enum):
    EARTH = (5.9, 6.3)
    HOME = (5.9, 6.3)  # noqa: PIE796 - an alias
    MARS = (0.6, 3.4)

    def __init__(self, mass: float, radius: float) -> None:
        self.mass, self.radius = mass, radius
        self.made = [*type(self).__members__]

    @property
    def density(self) -> float:
        return self.mass / self.radius


class Coordinate(int, enum.Enum):
    label: str
    X = (0, "left")
    Y = (1, "up")

    def __new__(cls, number: int, label: str) -> Coordinate:
        made = int.__new__(cls, number)
        made._value_, made.label = number, label
        return made


class Level(enum.IntEnum):
    LOW = enum.auto()
    SAME = 1
    HIGH = enum.auto()


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class Words(enum.StrEnum):
    A = "a"


@dataclasses.dataclass(frozen=True)
class Size:
    width: int
    height: int


class Format(Size, enum.Enum):
    A4 = 210, 297
    A5 = 148, 210


class Listed(enum.Enum):
    A = [1, 2]
    B = {"k": 1}


class Meta(enum.EnumMeta):
    @property
    def first(cls) -> Any:
        return next(iter(cls))


class Looked(enum.Enum, metaclass=Meta):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.A


class Operation(enum.Enum):
    """Its values refer to itself."""

    DOUBLE = (lambda number: (Operation.DOUBLE.name, 2 * number),)

    def __call__(self, number: int) -> Any:
        return self.value[0](number)


def look(kinds: list[Any]) -> list[Any]:
    seen: list[Any] = []
    for kind in kinds:
        seen.append([kind.__name__, kind.__qualname__, len(kind), repr(kind)])
        for name, member in kind.__members__.items():
            is_found = kind[name] is member is getattr(kind, name)
            by_value = kind(member.value) is member and member.value in [m.value for m in kind]
            seen.append([name, member.name, is_found, by_value, isinstance(member, kind)])
            own = {each: it for each, it in vars(member).items() if each != "__objclass__"}
            if kind not in (Operation,):
                seen.append([repr(member), str(member), sorted(map(repr, own.items()))])
    return seen


KINDS: list[Any] = [Planet, Coordinate, Level, Rights, Words, Format, Listed, Looked, Operation]


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_and_its_members_are_seen_as_they_are(kind: Any) -> None:
    assert ask([kind], look) == look([kind])


def test_members_keep_what_their_methods_and_the_program_have_set() -> None:
    Planet.MARS.visited = True
    Level.LOW.notes = [Level.HIGH]

    def questions(there: Any) -> list[Any]:
        planet, level = there
        return [
            planet.density == Planet.MARS.density == 0.6 / 3.4,
            planet is Planet.MARS and planet.visited,
            level.notes[0] is Level.HIGH,
            Planet.HOME is Planet.EARTH and Planet["HOME"] is Planet.EARTH,
            (Rights.READ | Rights.WRITE) is Rights.BOTH and Rights(3) is Rights.BOTH,
            ~Rights.READ is Rights.WRITE,
            Coordinate.Y.label == "up" and Coordinate.Y + 1 == 2 and Coordinate(1) is Coordinate.Y,
            Looked("x") is Looked.A and Looked.first is Looked.A,
            Format.A4.width == 210 and Format.A5 is Format(Format.A5.value),
            Listed([1, 2]) is Listed.A,
            Operation.DOUBLE(4),
        ]

    answers = ask([Planet.MARS, Level.LOW], questions)
    assert answers[:6] == [True] * 6 and answers[6] == 1
    assert answers[7:] == [True, True, True, ("DOUBLE", 8)]


def test_a_combination_of_flags_arrives() -> None:
    class Colors(enum.Flag):
        RED = enum.auto()
        BLUE = enum.auto()

    pair = Colors.RED | Colors.BLUE
    assert ask(pair, lambda there: (there.value, there.name, len(there))) == (3, "RED|BLUE", 2)
