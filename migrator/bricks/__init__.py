"""The bricks of the volume: list, drain, add, retire."""
