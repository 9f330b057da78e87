"""The conversion schedule: when each brick and server is free, from plan, bricks and capacity."""
