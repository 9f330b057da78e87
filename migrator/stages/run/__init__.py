"""Running batches: chunks by parallel confined streams, with every attempt in the ledger before it starts."""

from migrator.stages.run.choice import choose_plan, latest_plan
from migrator.stages.run.run import run_batches

__all__ = ["choose_plan", "latest_plan", "run_batches"]
