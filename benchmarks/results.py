"""All that one run of the benchmark found out, and its form as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from contenders import Contender
from costs import ALONE, StepTimes, slowdown
from moments import Times
from programs import ProgramFigures
from rates import Figures, ratios


@dataclass(slots=True)
class Results:
    """What was measured so far. `missing` are contenders whose package is not installed."""

    machine: dict[str, str]
    missing: list[Contender]
    rates: dict[str, list[Figures]] = field(default_factory=dict)
    moments: dict[str, list[Times]] = field(default_factory=dict)
    steps: dict[str, list[StepTimes]] = field(default_factory=dict)
    programs: dict[str, list[ProgramFigures]] = field(default_factory=dict)

    def figures(self, workload: str, key: str) -> Figures | None:
        """Return a contender's figures on a workload, if it has any."""
        found = [each for each in self.rates.get(workload, []) if each.contender == key]
        return found[0] if found and found[0].rate else None

    def median_s(self, moment: str, key: str) -> float | None:
        """Return a contender's time for a moment, if it has one."""
        found = [each for each in self.moments.get(moment, []) if each.contender == key]
        return found[0].median_s if found else None

    def program(self, program: str, key: str) -> ProgramFigures | None:
        """Return what a program did with a contender's loader, if it was run."""
        found = [each for each in self.programs.get(program, []) if each.contender == key]
        return found[0] if found else None

    def errors(self) -> list[str]:
        """Return who failed where, a line each."""
        groups = (self.rates, self.moments, self.steps, self.programs)
        return [
            f"{name}, {each.contender}: {each.error}"
            for group in groups
            for name, measured in group.items()
            for each in measured
            if each.error
        ]

    def as_json(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {
            "machine": self.machine,
            "missing": [each.key for each in self.missing],
            "workloads": {name: _rates(measured) for name, measured in self.rates.items()},
            "moments": {
                name: [asdict(each) | {"median_s": each.median_s} for each in measured]
                for name, measured in self.moments.items()
            },
            "steps": {name: _steps(measured) for name, measured in self.steps.items()},
            "programs": {
                name: [
                    asdict(each) | {"medians": {key: each.median(key) for key in each.values}}
                    for each in measured
                ]
                for name, measured in self.programs.items()
            },
        }


def _rates(measured: list[Figures]) -> list[dict[str, Any]]:
    found = []
    for each in measured:
        cpu = each.cpu_s(1000)
        found.append(
            {
                "contender": each.contender,
                "rates": each.rates,
                "median": each.rate,
                "ratio": ratios(each, measured[0]),
                "main_cpu_s_per_1000_batches": cpu and cpu[0],
                "workers_cpu_s_per_1000_batches": cpu and cpu[1],
                "error": each.error,
            }
        )
    return found


def _steps(measured: list[StepTimes]) -> list[dict[str, Any]]:
    alone = next(each for each in measured if each.contender == ALONE)
    return [
        asdict(each) | {"median_s": each.median_s, "to_alone": slowdown(each, alone)}
        for each in measured
    ]
