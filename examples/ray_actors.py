"""Ranks that Ray starts: an actor is a rank, and they meet as torchrun's do.

    pip install ray && python examples/ray_actors.py

On a cluster of Ray the actors are on its hosts (`ray.init("auto")`), each of which has ddpgrad installed.
"""

import os
import socket

import ray


@ray.remote(num_cpus=1)
class Rank:
    """One rank. It may train as often as it is asked to."""

    def place(self) -> tuple[str, int]:
        """An address of this rank's host that the others reach, and a port that is free there."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def train(self, rank: int, world_size: int, place: tuple[str, int]) -> float:
        """Train a little; returns the sum of the parameters."""
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR=place[0], MASTER_PORT=str(place[1])
        )
        import ddpgrad as torch
        import ddpgrad.distributed as dist
        from ddpgrad.nn.parallel import DistributedDataParallel

        dist.init_process_group()
        torch.manual_seed(rank)  # the replicas begin with rank 0's parameters all the same
        model = DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
        dist.destroy_process_group()
        return sum(parameter.detach().sum().item() for parameter in model.parameters())


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    ranks = [Rank.remote() for _ in range(2)]
    place = ray.get(ranks[0].place.remote())
    sums = ray.get([rank.train.remote(number, len(ranks), place) for number, rank in enumerate(ranks)])
    print("replicas bit-identical" if len(set(sums)) == 1 else f"replicas differ: {sums}")


if __name__ == "__main__":
    main()
