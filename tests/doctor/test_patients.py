"""Patients are told what ails them, who is well is left in peace: real processes, from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from .patient_programs import Patient, check_cause_is_named, check_nothing_is_named, shares

SOME, _ = shares()


@pytest.mark.parametrize("patient", [p for p in SOME if p.expects], ids=lambda each: each.name)
def test_what_ails_a_patient_is_named(patient: Patient, tmp_path: Path) -> None:
    check_cause_is_named(patient, tmp_path)


@pytest.mark.parametrize("patient", [p for p in SOME if not p.expects], ids=lambda each: each.name)
def test_nothing_is_named_for_who_is_well(patient: Patient, tmp_path: Path) -> None:
    check_nothing_is_named(patient, tmp_path)
