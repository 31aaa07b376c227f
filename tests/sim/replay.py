"""Run the loader of a seed, or tell its story:

python -m tests.sim.replay --seed 4711
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from antifreeze._core.supervisor import Supervisor

from .books import Broken
from .epochs import EPOCHS, Account, Simulation


def simulate(
    seed: int, make: Callable[..., Supervisor] = Supervisor, *, checked: bool = False
) -> list[Account]:
    """Run the loader of a seed. What goes wrong says how to see it again."""
    simulation = Simulation(seed, make, checked=checked)
    try:
        return list(simulation.epochs())
    except Exception as error:
        words = f"seed {seed}: {type(error).__name__}: {error}"
        raise Broken(f"{words}\n  again: python -m tests.sim.replay --seed {seed}") from error


def main(arguments: list[str] | None = None) -> int:
    """Tell the story of one seed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epoch", type=int, choices=range(EPOCHS), help="only this one")
    options = parser.parse_args(arguments)
    simulation = Simulation(options.seed, checked=True, whole_log=True)
    print(simulation.plan)
    told = 0
    problem: Exception | None = None
    accounts = simulation.epochs()
    for epoch in range(EPOCHS + 1):
        account: Account | None = None
        try:
            account = next(accounts, None)
        except Exception as error:
            problem = error
        entries = list(simulation.sup.event_log)[told:]
        told += len(entries)
        if options.epoch in (None, epoch):
            print(f"---- {'the close' if epoch == EPOCHS else f'epoch {epoch}'}")
            for entry in entries:
                print(entry)
            for at, what in simulation.trouble.log:
                print(f"{at:.3f}  fault: {what}")
            print(account or "")
        simulation.trouble.log.clear()
        if problem is not None:
            print(f"BROKEN: {type(problem).__name__}: {problem}")
            return 1
        if account is None:
            break
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
