"""Random tables for random packages: keyed by objects whose hash is code of the package."""

from __future__ import annotations

import random

_HASHED = (
    "    def __init__(self, name):\n        self.name = name\n"
    "    def __hash__(self):\n        return hash(('q', self.key()))\n"
    "    def __eq__(self, other):\n        return self.key() == other.key()\n"
    "    def key(self):\n        return self.name, SALT_{m}, helped_{m}()\n"
)
_HELP = "SALT_{m} = 3\ndef helped_{m}():\n    return Q_{m}.__name__\n"
# Classes of keys: two equal ones of each are `Q_m('a')` and `Q_m('a')`. Methods follow.
KEYS = {
    "frozen dataclass": "@dataclasses.dataclass(frozen=True)\nclass Q_{m}:\n    name: str\n",
    "hash": _HELP + "class Q_{m}:\n" + _HASHED,
    "slots": _HELP + "class Q_{m}:\n    __slots__ = ('name',)\n" + _HASHED,
    "inherited": _HELP + "class P_{m}:\n" + _HASHED + "class Q_{m}(P_{m}):\n    mark = 1\n",
    "equal": (
        _HELP + "class P_{m}:\n" + _HASHED + "class Q_{m}(P_{m}):\n    __hash__ = P_{m}.__hash__\n"
        "    def __eq__(self, other):\n        return self.name == other.name\n"
    ),
    "named tuple": (
        "@dataclasses.dataclass(frozen=True)\nclass I_{m}:\n    name: str\n"
        "class N_{m}(typing.NamedTuple):\n    inner: I_{m}\n"
        "class Q_{m}(N_{m}):\n    def __new__(cls, name):\n"
        "        return N_{m}.__new__(cls, name if type(name) is I_{m} else I_{m}(name))\n"
    ),
    "enum": (
        "class Q_{m}(enum.Enum):\n    A = 'a'\n    B = 'b'\n"
        "    def __hash__(self):\n        return hash(('q', self.value))\n"
    ),
    "enum of tuples": (
        "class Q_{m}(enum.Enum):\n    A = 'a', 1\n    B = 'b', 2\n"
        "    @classmethod\n    def _missing_(cls, name):\n"
        "        return cls.A if name == 'a' else cls.B\n"
        "    def __hash__(self):\n        return hash(self._value_)\n"
        "    def __eq__(self, other):\n        return self._value_ == other._value_\n"
    ),
}
X, Y = "Q_{m}('a')", "Q_{m}('b')"
# What a table is, and what is asked of it, which is `T`.
TABLES = {
    "dict": (f"{{{X}: 0, {Y}: 1}}", f"T[{X}], T[{Y}]"),
    "set": (f"{{{X}, {Y}}}", f"{X} in T, {Y} in T, len(T)"),
    "frozenset": (f"frozenset([{X}, {Y}])", f"{X} in T, {Y} in T, T == {{{X}, {Y}}}"),
    "ordered": (f"collections.OrderedDict([({Y}, 0), ({X}, 1)])", f"T[{X}], list(T.values())"),
    "default": (f"collections.defaultdict(int, {{{X}: 5}})", f"T[{X}], T[{Y}]"),
    "counter": (f"collections.Counter([{X}, {X}, {Y}])", f"T[{X}], T[{Y}], len(T)"),
    "tuples": (f"{{({X}, (1, {Y})): 0}}", f"T.get(({X}, (1, {Y})))"),
    "nested": (f"{{'k': [{{{X}: {{{Y}: 7}}}}]}}", f"T['k'][0][{X}].get({Y})"),
    "frozen keys": (f"{{frozenset([{X}]): 0}}", f"T.get(frozenset([{X}]))"),
    "view": (f"types.MappingProxyType({{{X}: 2}})", f"T.get({X})"),
}
# Where it is, and the expression for it. `V` is what it is.
PLACES = {
    "module": ("W_{m} = V\n", "W_{m}"),
    "class": ("Q_{m}.held = V\n", "Q_{m}.held"),
    "other class": ("class O_{m}:\n    kind = Q_{m}\n    held = V\n", "O_{m}.held"),
    "base": ("class O_{m}(Q_{m}.__bases__[0]):\n    held = V\n", "O_{m}.held"),
    "object": (
        "class O_{m}:\n    def __init__(self):\n        self.held = V\nW_{m} = O_{m}()\n",
        "W_{m}.held",
    ),
    "default": ("def at_{m}(table=V):\n    return table\n", "at_{m}()"),
    "closure": (
        "def in_{m}(table):\n    return lambda: table\nW_{m} = in_{m}(V)\n",
        "W_{m}()",
    ),
}
READERS = {
    "method": ("    def read(self):\n        T = E\n        return A\n", "", f"{X}.read()"),
    "class method": (
        "    @classmethod\n    def read(cls):\n        T = E\n        return A\n",
        "",
        "Q_{m}.read()",
    ),
    "function": ("", "def read_{m}():\n    T = E\n    return A\n", "read_{m}()"),
    "cached": (
        "    @functools.lru_cache(maxsize=None)\n    def calls(self):\n        return []\n"
        "    def read(self):\n        T = E\n"
        "        return A, self.calls(), FOUND_{m} is not None\n",
        f"FOUND_{{m}} = {X}\nFOUND_{{m}}.calls().append(1)\n",
        f"{X}.read()",
    ),
}


def table(m: str, dice: random.Random) -> tuple[str, str]:
    """Return the lines of a table in a module, and what is seen of it."""
    made = KEYS[dice.choice(list(KEYS))]
    place = dice.choice(list(PLACES))
    if place == "base" and "Q_{m}(P_{m})" not in made:
        place = "class"
    (value, asked), (placed, held) = TABLES[dice.choice(list(TABLES))], PLACES[place]
    methods, function, seen = READERS[dice.choice(list(READERS))]
    text = made + methods + placed.replace("V", value) + function
    text = text.replace("T = E", f"T = {held}").replace("return A", f"return {asked}")
    return text.replace("{m}", m), seen.replace("{m}", m)
