"""What users put in their datasets."""

from .per_worker import per_worker

__all__ = ["per_worker"]
