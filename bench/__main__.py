"""`python -m bench NAME`: benchmarks that show what the documentation claims. Not part of the installed program."""

import sys

from bench import plan_scale

BENCHMARKS = {"plan-scale": plan_scale.main}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        print(f"usage: python -m bench {{{','.join(BENCHMARKS)}}} [options]", file=sys.stderr)
        return 2
    return BENCHMARKS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
