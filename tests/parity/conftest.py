"""Give every parity test the loader it runs: torch's, ours, or both in turn."""

import multiprocessing
from collections.abc import Callable, Iterator

import psutil
import pytest

from .observe import LOADERS, OURS, LoaderClass, wait_until


@pytest.fixture(params=sorted(LOADERS))
def which(request: pytest.FixtureRequest) -> str:
    """Name the loader under test; a test that takes this holds for torch's loader too."""
    return str(request.param)


@pytest.fixture
def loader_class(which: str) -> LoaderClass:
    """Give torch's class, then ours: what is asserted with it is torch's behaviour."""
    return LOADERS[which]


@pytest.fixture
def ours() -> LoaderClass:
    """Give our class only: what is asserted with it is a promise torch does not make."""
    if OURS is LOADERS["torch"]:
        pytest.skip("antifreeze hands out torch's own loader in this environment")
    return OURS


@pytest.fixture(autouse=True)
def torch_forks_its_workers() -> Iterator[None]:
    """Have torch's loader fork, as ours does, also from Python 3.14 on.

    There it has a fork server by default: other workers than ours, and each of them imports torch.
    """
    if multiprocessing.get_all_start_methods()[0] == "fork":
        yield
        return
    contexts = multiprocessing.context._default_context
    before = contexts._actual_context  # the object: a default that is only fixed is no choice
    multiprocessing.set_start_method("fork", force=True)
    yield
    contexts._actual_context = before


@pytest.fixture
def no_new_children() -> Callable[[], None]:
    """Give a check, with a bounded wait, that all processes started since are gone again."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}

    def living() -> list[psutil.Process]:
        found = []
        for child in me.children(recursive=True):
            try:
                if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def check() -> None:
        assert wait_until(lambda: not living(), within_s=30), f"still running: {living()}"

    return check
