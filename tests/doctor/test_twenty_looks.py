"""A false alarm may be rare: who is well is looked at twenty times, and left in peace each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from .patient_programs import Patient, check_nothing_is_named, patients, thorough

pytestmark = thorough

LOOKS = 20
WELL = [each for each in patients() if not each.expects and each.name.startswith("well_and")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("patient", WELL, ids=lambda each: each.name)
def test_twenty_looks_at_who_is_well_give_no_alarm(patient: Patient, tmp_path: Path) -> None:
    check_nothing_is_named(patient, tmp_path, LOOKS)
