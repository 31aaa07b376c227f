"""Importing costs little and starts nothing; the package can be switched off."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import antifreeze

from ..patience import PATIENCE_S


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_importing_adds_little_to_importing_torch(tmp_path: Path) -> None:
    """The promise is 50 ms; the bound here is five times that, for a busy machine.

    What is installed is compiled: so is this copy.
    """
    package = tmp_path / "antifreeze"
    shutil.copytree(Path(antifreeze.__file__).parent, package)
    assert compileall.compile_dir(package, quiet=1)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    taken = min(
        float(
            run(
                """
                import sys, time, torch
                before = time.process_time()  # others may have the processor
                from antifreeze import DataLoader
                print(time.process_time() - before)
                import antifreeze
                assert antifreeze.__file__.startswith(sys.path[1])  # the copy
                """,
                PYTHONPATH=path,
            )
        )
        for _ in range(3)
    )
    assert taken < 0.25


def test_the_package_alone_brings_no_torch_and_has_its_names_all_the_same() -> None:
    run(
        """
        import sys, antifreeze, antifreeze.cli
        assert "torch" not in sys.modules
        assert {*antifreeze.__all__} <= {*dir(antifreeze)}
        assert not hasattr(antifreeze, "Loader")
        from antifreeze import *
        assert DataLoader.__module__ == "antifreeze.loader" and install.__name__ == "install"
        assert errors is sys.modules["antifreeze.errors"]
        """
    )


def test_importing_starts_nothing() -> None:
    run(
        """
        import os, threading, torch
        before = (threading.active_count(), len(os.listdir("/proc/self/fd")))
        from antifreeze import DataLoader
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
        import psutil
        assert psutil.Process().children() == []
        """
    )


def test_a_healthy_run_writes_not_one_byte_to_stderr() -> None:
    run(
        """
        import torch
        from antifreeze import DataLoader
        for persistent in (False, True):
            loader = DataLoader(list(range(50)), batch_size=7, num_workers=2,
                                persistent_workers=persistent)
            for _ in range(3):
                assert torch.cat(list(loader)).tolist() == list(range(50))
        """
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_the_switch_gives_torchs_own_loader_back(workers: int) -> None:
    out = run(
        f"""
        from antifreeze import DataLoader
        iterator = iter(DataLoader([1, 2, 3], num_workers={workers}))
        print(type(iterator).__module__)
        assert len(list(iterator)) == 3
        """,
        ANTIFREEZE="off",
    )
    assert out.strip() == "torch.utils.data.dataloader"


def test_a_platform_that_lacks_something_works_as_torchs_with_one_notice() -> None:
    run(
        """
        import os, warnings
        del os.pidfd_open
        from antifreeze import DataLoader
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert len(list(DataLoader([1, 2, 3], num_workers=1))) == 3
        assert len(caught) == 1, caught
        assert "pidfd_open" in str(caught[0].message)
        """
    )


def test_the_command_says_its_version_and_what_the_machine_has() -> None:
    program = [sys.executable, "-m", "antifreeze.cli"]
    version = subprocess.run(
        [*program, "--version"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert version.stdout.strip() == f"antifreeze {antifreeze.__version__}"
    platform = subprocess.run(
        [*program, "platform", "--json"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    facts = json.loads(platform.stdout)
    assert platform.returncode == 0
    assert facts["workers"] == "antifreeze" and facts["missing"] == []
    shown = subprocess.run(
        [*program, "platform"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "DataLoader runs on antifreeze's workers here." in shown.stdout
