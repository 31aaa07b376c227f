"""The plan of a simulated loader, drawn from the generator of its seed."""

from __future__ import annotations

import random

from antifreeze._core.limits import Limits, RecordLimits
from antifreeze._core.loader_plan import Plan, Source, Tenure
from antifreeze._core.reorder import Order

from .trouble import MOST_BYTES, SPARED

SEATS = 4


def plan_of(dice: random.Random, *, whole_log: bool = False) -> Plan:
    """Choose a loader. Its patience is short: what takes half an hour takes half a minute here."""
    watched = dice.random() < 0.9
    return Plan(
        seats=SEATS,
        window=dice.choice((4, 8, 8, 12)),
        order=dice.choice(list(Order)),
        source=(source := Source.STREAMS if dice.random() < 0.3 else Source.INDICES),
        longest_bundle=dice.choice((1, 1, 4, 64)),
        tenure=dice.choice(list(Tenure)),
        timeout_s=dice.choice((0.0, 0.0, 4.0)),
        spares=dice.random() < 0.5,
        resumes=source is Source.STREAMS and dice.random() < 0.3,
        restarts=source is Source.STREAMS and dice.random() < 0.7,
        limits=Limits(
            attempts=dice.choice((1, 2, 2)),
            tries=dice.choice((3, 6)),
            spared=SPARED,
            start_s=10.0,
            look_s=dice.choice((1.0, 2.0)) if watched else None,
            call_s=dice.choice((None, None, 6.0)),
            still_s=12.0,
            # The long one lasts until it is said that it spins.
            spin_s=dice.choice((20.0, 20.0, 20.0, 70.0)),
            life_bytes=dice.choice((None, MOST_BYTES)),
            records=RecordLimits(event_log_entries=None) if whole_log else RecordLimits(),
        ),
    )
