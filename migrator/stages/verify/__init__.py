"""Verify: compare both sides of a batch, path by path, and leave a manifest of what arrived."""

from migrator.stages.verify.request import VerifyRequest
from migrator.stages.verify.stage import verify
from migrator.stages.verify.telling import exit_code

__all__ = ["VerifyRequest", "exit_code", "verify"]
