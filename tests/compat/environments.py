"""Make an environment with one torch on one Python, outside of `.venv`, and remove it again.

1. torch comes first, with what it asks for itself: old ones pin packages that new ones do not.
2. What the tests need comes from `requirements/dev.txt`, with its hashes. A version that has no
   build for this Python is replaced by the newest one that has, and said.
3. An environment is used again only if it was finished (`READY`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "dev.txt"
READY = ".ready"  # a file in an environment that was finished
OLDEST = (3, 11)  # as `requires-python` in pyproject.toml
INSTALL_BOUND_S = 1800.0  # a GPU build is 5 GB with what it needs: minutes, on a slow line many
ASK_BOUND_S = 30.0  # an interpreter that does not tell its version by then is none
SAID = 15  # lines of an installer's output that are shown where it failed
# Not from the lock: what torch asks for itself (old ones pin other versions), and what checks
# the source rather than runs it.
LEFT_TO_TORCH = (
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy"),
    "typing-extensions",
)
NOT_NEEDED = ("ast-serialize", "librt", "mypy", "mypy-extensions", "pathspec", "ruff")


class CannotBeMade(Exception):
    """There is no such interpreter, or the packages cannot be installed on it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One torch on one Python."""

    torch: str
    python: str  # a command, or a path

    def __str__(self) -> str:
        return f"torch {self.torch} on {self.python}"


@dataclass(frozen=True, slots=True)
class Environment:
    wanted: Wanted
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def make(wanted: Wanted, base: Path) -> Environment:
    """Return an environment with all that the tests need, under `base`; one that is there serves.

    Raise CannotBeMade, with what the installer said, where that fails.
    """
    interpreter = find_interpreter(wanted.python)
    folder = base / f"torch-{wanted.torch}-py{_short(version_of(interpreter))}"
    environment = Environment(wanted, folder)
    if (folder / READY).exists():
        print(f"== {wanted}: the environment is there", flush=True)
        _install(environment, "--no-deps", "-e", str(ROOT))  # it may be of another checkout
        return environment
    print(f"== {wanted}: installing (a GPU build is 5 GB: some minutes)", flush=True)
    began = time.monotonic()
    environment.remove()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(wanted, [interpreter, "-m", "venv", str(folder)])
    _install(environment, f"torch=={wanted.torch}")
    _install_locked(environment)
    _install(environment, "--no-deps", "-e", str(ROOT))
    (folder / READY).touch()
    took = f"{(time.monotonic() - began) / 60:.1f} min"
    print(f"== {wanted}: installed in {took}", flush=True)
    return environment


def find_interpreter(python: str) -> str:
    """Return a command that starts the Python of this name: on the path, or among pyenv's."""
    named = shutil.which(python)
    version = re.fullmatch(r"python(\d+\.\d+t?)", python)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    pattern = f"versions/{version[1].removesuffix('t')}*/bin/{python}" if version else ""
    more = sorted(map(str, root.glob(pattern))) if pattern else []
    for candidate in [*([named] if named else []), *reversed(more)]:
        if found := version_of(candidate):
            if tuple(map(int, found.removesuffix("t").split(".")[:2])) < OLDEST:
                raise CannotBeMade("{} is older than Python {}.{}".format(python, *OLDEST))
            return candidate
    raise CannotBeMade(f"there is no {python} here")


def version_of(interpreter: str) -> str:
    """Return "3.13.1", or "3.13.1t" of a free-threaded one; nothing if it does not start."""
    asked = (
        "import sys, sysconfig;"
        "free = sysconfig.get_config_var('Py_GIL_DISABLED');"
        "print('{}.{}.{}'.format(*sys.version_info) + ('t' if free else ''))"
    )
    try:
        said = subprocess.run(
            [interpreter, "-c", asked], capture_output=True, text=True, timeout=ASK_BOUND_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def _short(version: str) -> str:
    """Return "3.13" of "3.13.1", "3.13t" of "3.13.1t"."""
    return ".".join(version.split(".")[:2]) + ("t" if version.endswith("t") else "")


def _install_locked(environment: Environment) -> None:
    """Install what the tests need, at the locked versions as far as they fit this Python."""
    pins = locked_for_tests()
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "tests.txt"
        lock.write_text("".join(pins.values()))
        exact = ("--no-deps", "--require-hashes", "-r", str(lock))
        try:
            _install(environment, *exact)
        except CannotBeMade:
            for name, pin in pins.items():
                lock.write_text(pin)
                try:
                    _install(environment, *exact)
                except CannotBeMade:
                    print(f"== {environment.wanted}: the newest {name}, not the locked one")
                    _install(environment, "--no-deps", name)


def locked_for_tests() -> dict[str, str]:
    """Return the lines of the lock, with hashes, by name: only of what the tests need."""
    blocks = re.split(r"^(?=[a-z])", LOCK.read_text(), flags=re.MULTILINE)
    pins = {block.partition("==")[0]: block for block in blocks if "==" in block}
    return {
        name: block
        for name, block in pins.items()
        if name not in LEFT_TO_TORCH and name not in NOT_NEEDED
    }


def _install(environment: Environment, *arguments: str) -> None:
    pip = [str(environment.python), "-m", "pip", "install", "--quiet"]
    _run(environment.wanted, [*pip, "--disable-pip-version-check", *arguments])


def _run(wanted: Wanted, command: list[str]) -> None:
    """Run a step, behind whatever else has work to do: tests may run at the same time."""
    polite = ["nice", "-n", "15"] if shutil.which("nice") else []
    try:
        done = subprocess.run(
            [*polite, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_BOUND_S,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBeMade(f"{wanted}: not done in {INSTALL_BOUND_S:g} s") from error
    if done.returncode != 0:
        said = "\n".join(done.stdout.strip().splitlines()[-SAID:])
        raise CannotBeMade(f"{wanted}: {' '.join(command[1:6])} failed:\n{said}")
