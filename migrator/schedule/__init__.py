"""When which brick and server is free: plan, bricks and capacity together."""
