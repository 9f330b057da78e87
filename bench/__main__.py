"""`python -m bench [NAME [OPTIONS]]`: benchmarks that show what the documentation claims; all of them without a name.

Not part of the installed program.
"""

import sys

from bench import plan_scale

BENCHMARKS = {"plan-scale": plan_scale.main}


def main() -> int:
    name, options = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if name and name not in BENCHMARKS:
        print(f"usage: python -m bench [{'|'.join(BENCHMARKS)}] [options]", file=sys.stderr)
        return 2
    return max(benchmark(options) for known, benchmark in BENCHMARKS.items() if name in ("", known))


if __name__ == "__main__":
    raise SystemExit(main())
