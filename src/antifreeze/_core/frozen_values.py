"""What events, commands, snapshots and other values are made of.

Three kinds of slotted dataclass. `dataclasses` compiles five methods for each class, which takes
half a millisecond; with the sixty classes of this package importing it would take 40 ms longer.
So here only `__init__` is compiled, on first use, and the rest is shared. To everybody else
(`dataclasses.fields`, `replace`, pickle, the type checker) they are dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclasses.dataclass
class _Sample:
    field: int


_KIND_OF_FIELD: Any = dataclasses.fields(_Sample)[0]._field_type  # type: ignore[attr-defined]


_PARAMS: Any = vars(_Sample)["__dataclass_params__"]


@dataclass_transform(frozen_default=True)
def message(cls: type[T]) -> type[T]:
    """Make a value that nobody may change, enforced by the type checker.

    To enforce it at run time as well, as `frozen` does, costs 1.4 us an object instead of 0.24 us:
    eight of them a batch are a fifth of what a whole batch of integers costs.
    """
    return _build(cls, {"__eq__": _equal, "__hash__": _hash, "__repr__": _repr})


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a value that cannot be changed: for outside eyes, and where speed does not matter."""
    methods = {
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": _values,
        "__setstate__": _set_values,
    }
    return _build(cls, methods)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Make a thing with named fields that change. It is equal to itself only."""
    return _build(cls, {"__repr__": _repr})


def _build(cls: type[T], methods: dict[str, Any]) -> type[T]:
    fields = {name: _field(cls, name) for name in cls.__annotations__}
    namespace = {
        name: value
        for name, value in vars(cls).items()
        if name not in fields and name not in ("__dict__", "__weakref__")
    }
    namespace |= {name: each for name, each in methods.items() if name not in namespace}
    namespace["__qualname__"] = cls.__qualname__
    namespace["__slots__"] = namespace["__match_args__"] = tuple(fields)
    namespace["__dataclass_fields__"] = fields
    namespace["__dataclass_params__"] = _PARAMS
    namespace["__replace__"] = dataclasses.replace
    made: type[T] = type(cls.__name__, cls.__bases__, namespace)
    is_first = True

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        """Compile the real one, when the first object is made: most programs never crash, so most
        of them never make half of the classes. Nor is one needed for an object of defaults, of
        which there is often no second (`LIMITS`)."""
        nonlocal is_first
        first, is_first = is_first, False
        if first and not (values or named) and (plain := _defaults(fields)) is not None:
            for name, value in plain.items():
                object.__setattr__(self, name, value)
            if "__post_init__" in namespace:
                self.__post_init__()
            return
        init = _init(namespace, fields)
        made.__init__ = init  # type: ignore[method-assign]
        init(self, *values, **named)

    made.__init__ = __init__  # type: ignore[method-assign]
    return made


def _field(cls: type[Any], name: str) -> dataclasses.Field[Any]:
    default = cls.__dict__.get(name, dataclasses.MISSING)
    made: Any = default
    if not isinstance(default, dataclasses.Field):
        made = dataclasses.field(default=default)
    made.name, made.type, made._field_type = name, cls.__annotations__[name], _KIND_OF_FIELD
    return made  # type: ignore[no-any-return]


def _defaults(fields: dict[str, dataclasses.Field[Any]]) -> dict[str, Any] | None:
    """Return the default of each field; None if one has no plain default."""
    defaults = {name: each.default for name, each in fields.items()}
    return None if dataclasses.MISSING in defaults.values() else defaults


def _init(
    namespace: dict[str, Any], fields: dict[str, dataclasses.Field[Any]]
) -> Callable[..., None]:
    """Compile the one method that must be quick."""
    set_one = (
        "_set(self, '{0}', {1})" if namespace.get("__setattr__") is _refuse else "self.{0}={1}"
    )
    known: dict[str, Any] = {"_set": object.__setattr__}
    parameters, body = ["self"], []
    for name, each in fields.items():
        value = name
        if each.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameters.append(f"{name}=None")
            value = f"_make_{name}() if {name} is None else {name}"
        elif each.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(set_one.format(name, value))
    if "__post_init__" in namespace:
        body.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n " + ("; ".join(body) or "pass")
    # Compiled first: to run text makes CPython forget that it is ending because of Ctrl-C, and
    # this may be on the way out.
    exec(compile(source, "<message>", "exec"), known)
    init: Callable[..., None] = known["__init__"]
    return init


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _set_values(self: Any, values: tuple[Any, ...]) -> None:
    for name, value in zip(self.__match_args__, values, strict=True):
        object.__setattr__(self, name, value)


def _equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    pairs = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
    return f"{type(self).__qualname__}({', '.join(pairs)})"


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
