"""Patients are told what ails them, who is well is left in peace: real processes, from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ward import Patient, left_in_peace, shares, told_what_ails_it

SOME, _ = shares()


@pytest.mark.parametrize("patient", [p for p in SOME if p.expects], ids=lambda each: each.name)
def test_a_patient_is_told_what_ails_it(patient: Patient, tmp_path: Path) -> None:
    told_what_ails_it(patient, tmp_path)


@pytest.mark.parametrize("patient", [p for p in SOME if not p.expects], ids=lambda each: each.name)
def test_who_is_well_is_left_in_peace(patient: Patient, tmp_path: Path) -> None:
    left_in_peace(patient, tmp_path)
