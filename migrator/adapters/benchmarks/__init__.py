"""Benchmarks on hosts: a script of the standard library is sent to each, and does one step at a time there."""
