"""The bricks of the volume: list, drain, add, recover, retire."""
