"""Helpers for tests of checkpoints: simulated ranks, and the contents of a folder."""

from pathlib import Path

from ddpgrad import distributed


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of all files in `folder`, by their place there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ranks(count: int, program) -> list:
    """Run `program` as `count` ranks with a default process group; the results by rank."""

    def run():
        distributed.init_process_group()
        try:
            return program(distributed.get_rank())
        finally:
            distributed.destroy_process_group()

    return distributed.simulate(run, count)
