"""`brick add`: add-brick, fix-layout, rebalance; or storage for the target."""
