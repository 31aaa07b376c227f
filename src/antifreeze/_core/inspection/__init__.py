"""What the core shows of itself: its event log, snapshots, invariants and state diagrams."""
