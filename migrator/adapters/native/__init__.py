"""The compiled program that works beside the data: it walks bricks and copies files."""
