"""Looking at bricks on their hosts: walks by the compiled program, and scripts that are sent with each question."""
