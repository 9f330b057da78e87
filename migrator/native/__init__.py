"""The compiled program that works beside the data: it walks bricks, copies files and confines streams."""
