"""What `make test` and `make test-all` run."""

from __future__ import annotations

from tests.run import share_out


def names(everything: bool) -> set[str]:
    shares = share_out(3, everything).values()
    return {path.name for share in shares for path in share}


def test_make_test_leaves_out_what_needs_a_trainers_package() -> None:
    usual = names(everything=False)
    assert {"test_ddp.py", "test_install.py", "test_import.py"} <= usual
    assert not {"test_lightning.py", "test_accelerate.py", "test_pages.py"} & usual


def test_make_test_all_has_those_as_well() -> None:
    more = names(everything=True) - names(everything=False)
    assert {"test_lightning.py", "test_transformers.py", "test_ray_train.py"} <= more
    assert {"test_more_patients.py", "test_twenty_looks.py"} <= more
    assert all(name.startswith("test_") for name in more) and len(more) == 10
