"""A TCPStore serves who knows DDPGRAD_TOKEN, and says whom it refused."""

import socket
import time

import pytest

import ddpgrad.distributed as dist


def refused(caplog: pytest.LogCaptureFixture) -> str:
    deadline = time.monotonic() + 300
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    text = caplog.text
    caplog.clear()
    return text


def test_who_does_not_know_the_token_is_refused(monkeypatch, caplog):
    monkeypatch.setenv("DDPGRAD_TOKEN", "a secret")
    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    dist.TCPStore("127.0.0.1", served.port).set("key", b"value")
    monkeypatch.setattr("ddpgrad.distributed.tcp_store._PROOF_S", 0.5)  # of those that prove nothing
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n")
        assert "refused a connection from 127.0.0.1 to a TCPStore: it does not know DDPGRAD_TOKEN" in refused(
            caplog
        )
    with socket.create_connection(("127.0.0.1", served.port)) as silent:
        assert "does not know DDPGRAD_TOKEN" in refused(caplog)
        assert silent.recv(100)[:4] == b"DDPT"
    assert served.get("key") == b"value"
    served.close()


def test_a_rank_without_the_token_is_told_and_one_with_it_that_none_is_asked_for(monkeypatch):
    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    monkeypatch.setenv("DDPGRAD_TOKEN", "a secret")
    with monkeypatch.context() as soon:
        soon.setattr("ddpgrad.distributed.tcp_store._PROOF_S", 0.5)
        with pytest.raises(dist.DistStoreError, match="asks for no token: set DDPGRAD_TOKEN for all ranks"):
            dist.TCPStore("127.0.0.1", served.port)
    served.close()
    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    monkeypatch.delenv("DDPGRAD_TOKEN")
    with pytest.raises(dist.DistStoreError, match="it asks for DDPGRAD_TOKEN, which is not set here"):
        dist.TCPStore("127.0.0.1", served.port).set("key", "value")
    monkeypatch.setenv("DDPGRAD_TOKEN", "another")
    with pytest.raises(dist.DistStoreError, match="refused this process: is DDPGRAD_TOKEN the same"):
        dist.TCPStore("127.0.0.1", served.port)
    served.close()


def test_who_speaks_another_language_is_named(caplog):
    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n")
        assert "refused a connection from 127.0.0.1 to a TCPStore: a message of" in refused(caplog)
    served.set("key", "value")
    served.close()
