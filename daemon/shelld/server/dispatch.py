"""Calls methods with jsonrpcserver.

No other file uses this package. Turns the exceptions of methods into `RpcError`.

This module calls internal functions of jsonrpcserver. Each call gets one validated request and its
method. The public functions would start tasks of their own (out of reach of a cancel scope), refuse
a whole batch because of one bad member, and put exception texts into answers. They also compare the
arguments with the method's signature at every call, which takes as long as judging a command.

The package jsonrpcserver imports jsonschema, for a validation that is not used here. That import
would take a large part of the start-up time. jsonrpcserver also uses two classes of oslash, a
package that imports all of its modules. So this module imports the dispatcher without running the
``__init__`` of either package. After that, this module removes the incomplete packages from
`sys.modules`, so that a normal import still works.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from shelld.process.faults import answer_for
from shelld.process.logs import Log
from shelld_protocol.errors import RpcError, internal_error, method_not_found
from shelld_protocol.params import decode_params
from shelld_protocol.structs import Params

logger = Log("shelld.dispatch")

C = TypeVar("C")
P = TypeVar("P", bound=Params)


def _import_jsonrpcserver() -> tuple[Any, Any, Any, Any]:
    half_made: list[str] = []
    try:
        for name in {"jsonrpcserver", "oslash"} - sys.modules.keys():
            spec = importlib.util.find_spec(name)
            assert spec is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            half_made.append(name)
        dispatcher = importlib.import_module("jsonrpcserver.async_dispatcher")
        request = importlib.import_module("jsonrpcserver.request")
        result = importlib.import_module("jsonrpcserver.result")
        exceptions = importlib.import_module("jsonrpcserver.exceptions")
    finally:
        for name in half_made:
            del sys.modules[name]
    return (
        dispatcher.call,
        request.Request,
        result.Success,
        exceptions.JsonRpcError,
    )


_call, _Request, _Success, _JsonRpcError = _import_jsonrpcserver()

Method = Callable[[Any, bytes], Awaitable[Any]]


def as_method(
    params_type: type[P],
    body: Callable[[C, P], Awaitable[Any]],
    divert: Callable[[C, bytes], Awaitable[Any] | None] | None = None,
) -> Method:
    """Return a method that jsonrpcserver can call with raw params.

    It calls `body` with (context, params).

    If `divert` returns an awaitable, the method awaits this instead of the body.
    """

    async def method(context: C, raw_params: bytes) -> Any:
        try:
            if divert is not None and (other := divert(context, raw_params)) is not None:
                return _Success(await other)
            return _Success(await body(context, decode_params(params_type, raw_params)))
        except RpcError as error:
            # Keep no second reference to the error, because the reference would form a cycle with
            # the traceback.
            raise _JsonRpcError(error.code, error.message, error) from None
        except Exception as error:
            answer = answer_for(error, "a method")
            raise _JsonRpcError(answer.kind.code, answer.message, answer) from None

    return method


async def dispatch(
    methods: Mapping[str, Method], context: object, name: str, raw_params: bytes
) -> Any:
    """Call the method `name`. Return its result, or the `RpcError` for the answer.

    Does not raise the error again. This frame refers to the error, and the traceback of a raised
    error would refer to this frame. Such a cycle would keep the data of a failed request in memory
    until a garbage collection. The data can be megabytes.
    """
    method = methods.get(name)
    if method is None:
        return method_not_found(name)
    outcome = await _call(_Request(name, [raw_params], None), context, method)
    error = getattr(outcome, "_error", None)
    if error is None:
        return outcome._value.result
    if isinstance(error.data, RpcError):
        return error.data
    logger.error("jsonrpcserver refused a call: code %s", error.code)
    return internal_error()
