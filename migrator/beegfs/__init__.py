"""BeeGFS: storage targets, quotas, and its command line tools of versions 7 and 8."""
