"""The command line: parse, call one feature, render, exit code."""
