"""Scan: walk the whole source once, and leave a catalog of it."""

from migrator.stages.scan.stage import ScanRequest, scan

__all__ = ["ScanRequest", "scan"]
