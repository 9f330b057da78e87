"""Scan: read the whole source once, and leave a catalog of it."""

from migrator.stages.scan.session import ScanRequest
from migrator.stages.scan.stage import scan
from migrator.stages.scan.way import Bricks

__all__ = ["Bricks", "ScanRequest", "scan"]
