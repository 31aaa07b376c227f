"""Write `dev.txt`: every package that development needs, with version and hashes. `make lock`.

1. What is wanted is in pyproject.toml (dependencies, the extra `dev`, what builds) and
   constraints.txt; this resolves it, in an environment that is thrown away.
2. torch is not in it: its builds differ by platform. The Makefile installs it beside, at the
   version in constraints.txt. What torch itself needs of pure Python is in it.
3. The result depends on the package index alone: settings of pip on this machine do not count, and
   neither names of hosts nor paths get into the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
OLDEST = (3, 11)  # its resolution holds for newer ones, too; theirs need not hold for it
PIP_TOOLS = "pip-tools==7.5.3"
BESIDE = "torch"
# What torch asks for on every platform; see `tests/packaging/test_lock.py`.
OF_TORCH = (
    *("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"),
)
HEADER = """\
# Packages for development and CI, with hashes. Written by `make lock`: do not edit.
# Wanted are those in pyproject.toml and constraints.txt. torch is installed beside (see Makefile).
"""


def main() -> None:
    if sys.version_info[:2] != OLDEST:
        sys.exit("make lock needs Python {}.{}: make lock PYTHON=...".format(*OLDEST))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / "bin" / "python")
        run(python, "-m", "pip", "install", "--quiet", PIP_TOOLS)
        wanted = folder / "wanted.in"
        wanted.write_text("".join(f"{each}\n" for each in wanted_packages()))
        made = folder / "made.txt"
        if LOCK.exists() and "--upgrade" not in sys.argv:  # versions stay unless they must change
            made.write_text(LOCK.read_text())
        compile_ = [*(python, "-m", "piptools", "compile"), "--quiet", *sys.argv[1:]]
        quiet = ["--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe"]
        unnamed = ["--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links"]
        files = [*("-c", str(ROOT / "constraints.txt")), *("-o", str(made)), str(wanted)]
        run(*compile_, "--generate-hashes", *quiet, *unnamed, "--no-emit-options", *files)
        pinned = made.read_text()
    lines = [line for line in pinned.splitlines() if not line.startswith("#") and line.strip()]
    LOCK.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    print(f"{LOCK.relative_to(ROOT)}: {sum(not line.startswith(' ') for line in lines)} packages")


def wanted_packages() -> list[str]:
    """Return what pyproject.toml asks for, without torch, and what torch asks for."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = table["project"]
    named = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *table["build-system"]["requires"],
    ]
    return [*(each for each in named if name_of(each) != BESIDE), *OF_TORCH]


def name_of(requirement: str) -> str:
    """Return the name of a package as indexes spell it."""
    found = re.match(r"[\w.-]+", requirement)
    return "" if found is None else re.sub(r"[-_.]+", "-", found[0]).lower()


def run(*command: str) -> None:
    settings = {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_REQUIREMENT"}
    environment = {key: value for key, value in os.environ.items() if key not in settings}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run(command, check=True, env=environment, cwd=ROOT)


if __name__ == "__main__":
    main()
