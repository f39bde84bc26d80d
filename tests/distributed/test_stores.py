"""Stores of torch.distributed, and `rendezvous`, which makes them."""

import gc
import os
import threading
from datetime import timedelta

import pytest
from started_by_hand import free_port

import ddpgrad.distributed as dist
from ddpgrad.distributed import distributed_c10d as c10d


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def two_users(request, tmp_path):
    """One store, as two processes or threads see it."""
    if request.param == "hash":
        store = dist.HashStore()
        return store, store
    if request.param == "file":
        return tuple(dist.FileStore(str(tmp_path / "store"), 2) for _ in range(2))
    if request.param == "prefix":
        store = dist.HashStore()
        store.set("key", "of nobody")
        return tuple(dist.PrefixStore("mine", store) for _ in range(2))
    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    return served, dist.TCPStore("127.0.0.1", served.port)


def test_a_store_keeps_what_either_sets(two_users):
    a, b = two_users
    before = a.num_keys()
    late = threading.Timer(0.05, lambda: b.set("key", b"\xff\0value"))
    late.start()
    assert a.get("key") == b"\xff\0value"
    late.join()
    assert [a.add("count", 2), b.add("count", 3), a.add("count", 0)] == [2, 5, 5]
    assert a.compare_set("key", "no", "new") == b"\xff\0value"
    assert b.compare_set("free", "", "new") == b"new"
    a.append("free", "er")
    assert b.multi_get(["free", "count"]) == [b"newer", b"5"]
    assert a.check(["free", "key"])
    assert not b.check(["free", "nothing"])
    assert a.num_keys() == before + 3
    assert b.delete_key("free")
    assert not a.delete_key("free")
    with pytest.raises(dist.DistStoreError, match=r"nobody set (mine/)?nothing"):
        a.wait(["count", "nothing"], timedelta(seconds=0.01))


def test_counters_of_many_threads(two_users):
    def count(store):
        for _ in range(50):
            store.add("n", 1)

    threads = [threading.Thread(target=count, args=(two_users[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert two_users[0].get("n") == b"200"


def test_a_store_is_cloned_and_lists_its_keys(two_users):
    a, b = two_users
    b.set("key", "value")
    assert a.clone().get("key") == b"value"
    assert "key" in a.list_keys()
    threads = [threading.Thread(target=store.barrier, args=("all", 2, 60)) for store in two_users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()


def test_queues_are_no_keys(two_users):
    a, b = two_users
    if not a.has_extended_api():
        with pytest.raises(NotImplementedError, match="no queues"):
            a.queue_push("jobs", "x")
        return
    before = a.num_keys()
    a.queue_push("jobs", "first")
    b.queue_push("jobs", b"second")
    assert [a.queue_len("jobs"), b.queue_pop("jobs"), a.queue_pop("jobs", False)] == [2, b"first", b"second"]
    assert a.num_keys() == before
    with pytest.raises(dist.QueueEmptyError, match="jobs is empty"):
        a.queue_pop("jobs", block=False)
    a.set_timeout(timedelta(seconds=0.01))
    with pytest.raises(dist.DistStoreError, match="nobody pushed"):
        a.queue_pop("jobs")


@pytest.mark.parametrize(
    "wrong", [lambda s: s.set("key", 1), lambda s: s.wait("key"), lambda s: s.compare_set("key", None, "x")]
)
def test_other_types_are_refused(wrong):
    with pytest.raises(TypeError):
        wrong(dist.HashStore())


def test_a_file_store_removes_its_file_with_its_last_user(tmp_path):
    path = tmp_path / "store"
    first, second = (dist.FileStore(str(path), 2) for _ in range(2))
    del first
    gc.collect()
    assert path.exists()
    del second
    gc.collect()
    assert not path.exists()


class Own(dist.Store):
    """A store of a program's own, which has some methods."""

    def __init__(self):
        super().__init__()
        self.content = {}

    def set(self, key, value):
        self.content[key] = value

    def get(self, key):
        return self.content[key]

    def add(self, key, amount):
        self.content[key] = total = self.content.get(key, 0) + amount
        return total


def test_a_store_of_a_programs_own_has_a_prefix():
    own = Own()
    store = dist.PrefixStore("mine", own)
    store.set("key", "value")
    assert [store.get("key"), store.add("n", 2), store.add("n", 3)] == [b"value", 2, 5]
    assert set(own.content) == {"mine/key", "mine/n"}
    with pytest.raises(NotImplementedError, match="Own is a Store without `check`"):
        store.check(["key"])


def test_a_port_is_shared_by_masters_that_say_so():
    first = dist.TCPStore("127.0.0.1", 0, 1, True, multi_tenant=True)
    second = dist.TCPStore("127.0.0.1", first.port, 1, True, multi_tenant=True)
    first.set("key", "value")
    assert second.get("key") == b"value"
    with pytest.raises(
        dist.DistNetworkError, match=r"failed to listen on any local network address.*EADDRINUSE"
    ):
        dist.TCPStore("127.0.0.1", first.port, 1, True)
    first.close()
    assert second.get("key") == b"value"
    with pytest.raises(dist.DistNetworkError, match=r"nobody serves a TCPStore on 127\.0\.0\.1:1"):
        dist.TCPStore("127.0.0.1", 1, timeout=timedelta(seconds=0.01))


def test_rendezvous_gives_store_rank_and_size(tmp_path, monkeypatch):
    both = [next(dist.rendezvous(f"file://{tmp_path}/store", rank, 2)) for rank in range(2)]
    assert [one[1:] for one in both] == [(0, 2), (1, 2)]
    both[0][0].set("key", "value")
    assert both[1][0].get("key") == b"value"
    [(store, *who)] = [
        next(dist.rendezvous(f"tcp://127.0.0.1:{free_port()}", 0, 1, timeout=timedelta(seconds=9)))
    ]
    assert (who, store.timeout) == ([0, 1], timedelta(seconds=9))
    for name, value in {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": free_port(),
    }.items():
        monkeypatch.setenv(name, str(value))
    again = dist.rendezvous("env://")
    assert next(again)[1:] == (0, 1)
    with pytest.raises(RuntimeError, match="rerendezvous using env://"):
        next(again)
    with pytest.raises(RuntimeError, match=r"^No rendezvous handler for invalid://"):
        dist.rendezvous("invalid://")
    with pytest.raises(ValueError, match="world size parameter missing"):
        next(dist.rendezvous("file:///tmp/x?rank=0"))


def test_a_programs_own_scheme():
    store = dist.HashStore()

    def handler(url, **options):
        yield store, 0, 1

    dist.register_rendezvous_handler("own", handler)
    with pytest.raises(RuntimeError, match="own:// already registered"):
        dist.register_rendezvous_handler("own", handler)
    assert next(dist.rendezvous("own://place")) == (store, 0, 1)
    dist.init_process_group("gloo", init_method="own://place")
    assert dist.get_world_size() == 1
    dist.destroy_process_group()


def test_the_default_store_is_the_one_that_was_given(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=0.05)
    c10d._get_default_store().set("key", "value")
    assert store.get("default_pg/key") == b"value"
    with pytest.raises(dist.DistStoreError, match="timeout"):
        c10d._get_default_store().get("nothing")
    dist.destroy_process_group()
    assert os.path.exists(store.path)


def test_a_barrier_by_a_store_names_how_many_came():
    with pytest.raises(dist.DistStoreError, match=r"store based barrier on rank 1, .*num_workers_joined=1"):
        c10d._store_based_barrier(1, dist.HashStore(), "_", 2, timedelta(seconds=0.02))
