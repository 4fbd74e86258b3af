"""Errors as values, and how a program can use them."""

from __future__ import annotations

import errno
import pickle

from shelld_protocol.errors import RpcError, spawn_failed


def test_pickle_keeps_an_error_whole() -> None:
    error = spawn_failed(errno.ENOENT, "cwd")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (RpcError, error.args, vars(error))
