"""The packages for development are locked: all of them, at the versions that are wanted."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "dev.txt"
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def locked() -> dict[str, tuple[Version, list[str]]]:
    """Return versions and options by name; of a line that is not understood, nothing else."""
    found = {}
    for line in re.sub(r"\\\n", " ", LOCK.read_text()).splitlines():
        if line.startswith("#"):
            continue
        pin, *options = line.split()
        name, equals, version = pin.partition("==")
        assert equals and name == canonicalize_name(name), line
        found[name] = Version(version), options
    return found


PINS = locked()
TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TABLE["project"]
WANTED = [
    *PROJECT["dependencies"],
    *PROJECT["optional-dependencies"]["dev"],
    *TABLE["build-system"]["requires"],
]
BESIDE = "torch"


@pytest.mark.parametrize("wanted", WANTED)
def test_what_is_wanted_is_locked_at_a_version_that_fits(wanted: str) -> None:
    requirement = Requirement(wanted)
    name = canonicalize_name(requirement.name)
    assert (name in PINS) == (name != BESIDE), "run `make lock`"
    assert name == BESIDE or PINS[name][0] in requirement.specifier, "run `make lock`"


def test_versions_that_are_pinned_are_those_that_are_locked() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert BESIDE in {each.name for each in pinned}
    for each in pinned:
        name = canonicalize_name(each.name)
        assert name not in PINS or PINS[name][0] in each.specifier, f"run `make lock`: {each}"


def test_every_package_has_hashes_and_nothing_else() -> None:
    assert len(PINS) > len(WANTED)
    for name, (_, options) in PINS.items():
        assert options and all(map(_HASH.fullmatch, options)), name
    assert not re.search(r"://|find-links|index|file:|/", LOCK.read_text().replace("CI, ", ""))


def test_what_is_locked_needs_nothing_that_is_not() -> None:
    """Also what torch needs on every platform: it is installed without its hashes."""
    for name in [*PINS, BESIDE]:
        for line in importlib.metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                is_of_platform = re.match(r"nvidia|cuda|triton|pytorch-triton", needed.name)
                known = canonicalize_name(needed.name) in PINS
                assert known or (name == BESIDE and is_of_platform), f"{name} needs {line}"


def test_the_makefile_installs_torch_at_the_version_that_is_pinned() -> None:
    (pinned,) = re.findall(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    rule = (ROOT / "Makefile").read_text().partition("$(READY):")[2].partition("\n\n")[0]
    assert f"-c constraints.txt {pinned})" in rule
    assert "--require-hashes --no-deps -r $(LOCK)" in rule
    assert "--no-deps --no-build-isolation -e ." in rule
    assert rule.count("$(INSTALL)") == 3 and "|| true" not in rule


def test_the_lock_is_made_of_what_pyproject_asks_for() -> None:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "requirements" / "lock.py")
    assert spec is not None and spec.loader is not None
    lock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lock)
    names = {canonicalize_name(Requirement(each).name) for each in lock.wanted_packages()}
    assert names <= set(PINS) and BESIDE not in names
    assert {canonicalize_name(Requirement(each).name) for each in WANTED} <= names | {BESIDE}
