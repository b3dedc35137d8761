"""What is where in a sweep, its unfinished jobs again, less disk: `python sweep.py status|retry|clean NAME`."""

import sys

from torchlite import stopping

with stopping.loading():
    import argparse

    from torchlite.sweep import manage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    status = commands.add_parser("status", help="every sweep in ./outputs, or every job of one")
    status.add_argument("name", nargs="?", help="a sweep's name, or its directory")
    retry = commands.add_parser("retry", help="run what failed or was cut off, as it was planned")
    retry.add_argument("name")
    retry.add_argument("--num-jobs", type=int, default=1, help="jobs at a time; 1 when not given")
    clean = commands.add_parser("clean", help="delete the checkpoints of all finished jobs but the best")
    clean.add_argument("name")
    clean.add_argument("--keep", type=int, required=True, help="best jobs that keep theirs")
    asked = parser.parse_args()
    if asked.command == "status":
        return manage.ended(lambda: manage.status(asked.name))
    if asked.command == "retry":
        return manage.ended(lambda: manage.retry(asked.name, asked.num_jobs))
    return manage.ended(lambda: manage.clean(asked.name, asked.keep))


if __name__ == "__main__":
    sys.exit(main())
