"""Parse, call one stage, render, exit code."""
