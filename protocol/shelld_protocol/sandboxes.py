"""Defines the policies of sandboxes, both in requests and in results."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.structs import Params, Result

SandboxMode: TypeAlias = Literal["off", "read-only", "workspace"]
SandboxTmp: TypeAlias = Literal["private", "shared"]
SandboxNetwork: TypeAlias = Literal["none", "loopback", "hosts", "full"]
SandboxEngine: TypeAlias = Literal["auto", "bwrap", "landlock"]

_Paths: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=100)]

_Hosts: TypeAlias = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=300)]], Meta(max_length=1000)
]


class SandboxPolicy(Params, omit_defaults=True, frozen=True):  # type: ignore[misc]
    """What the commands of a session may reach.

    A relative path is relative to the session's directory, and `~` is the home directory. A pattern
    such as `*.pem` is refused. Denying a path also denies everything below it, even paths that
    `write` names. If a denied path does not exist, commands cannot create it.
    """

    mode: (
        Annotated[
            SandboxMode,
            Meta(
                description="off: no sandbox. read-only: commands can write nothing outside of "
                "their private directories. workspace: they can also write to the paths in write. "
                "Default: workspace."
            ),
        ]
        | None
    ) = None
    write: (
        Annotated[
            _Paths,
            Meta(
                description="In the mode workspace, the paths that commands can write to. They "
                "must exist. Default: the session's directory."
            ),
        ]
        | None
    ) = None
    deny_write: (
        Annotated[_Paths, Meta(description="Paths that commands cannot write to.")] | None
    ) = None
    deny_read: (
        Annotated[_Paths, Meta(description="Paths that commands can neither read nor write.")]
        | None
    ) = None
    tmp: (
        Annotated[
            SandboxTmp,
            Meta(
                description="private: /tmp and /var/tmp are empty at first, and end with the "
                "sandbox. shared: they are those of the machine; in the mode workspace, commands "
                "can write to them. Default: private."
            ),
        ]
        | None
    ) = None
    network: (
        Annotated[
            SandboxNetwork,
            Meta(
                description="none: no network. loopback: only the sandbox's own loopback. hosts: "
                "only the hosts in hosts, through a proxy that programs find in http_proxy, "
                "https_proxy and all_proxy. full: the network of the machine. Default: none."
            ),
        ]
        | None
    ) = None
    hosts: (
        Annotated[
            _Hosts,
            Meta(
                description="For network hosts: names, addresses, and *.x for the names below x, "
                "each with or without a port. Without a port, every port is allowed. A name that "
                "has a private address is reached only if that address is listed too."
            ),
        ]
        | None
    ) = None
    unix_sockets: (
        Annotated[
            _Paths,
            Meta(description="Unix sockets of the machine that commands can connect to."),
        ]
        | None
    ) = None
    engine: (
        Annotated[
            SandboxEngine,
            Meta(
                description="What enforces the policy. auto is bwrap. landlock is not supported "
                "and is refused. Default: the daemon's --sandbox-engine."
            ),
        ]
        | None
    ) = None


Sandbox: TypeAlias = Annotated[
    SandboxPolicy,
    Meta(
        description="What the command may reach. It can only tighten the policy of the session: "
        "anything looser is refused. Denied paths add to those of the session."
    ),
]


class EnforcedSandbox(Result):
    """What the sandbox of a command enforces."""

    engine: Annotated[Literal["bwrap"], Meta(description="What enforces the policy.")]
    files: Annotated[
        Literal["read-only", "workspace"],
        Meta(description="The mode: whether the command can write to the paths in write."),
    ]
    network: Annotated[
        Literal["none", "loopback", "hosts", "full"],
        Meta(description="The network of the command."),
    ]
    processes: Annotated[
        Literal["isolated"],
        Meta(description="isolated: the command sees only processes of its sandbox."),
    ]
    replaced: Annotated[
        bool,
        Meta(
            description="True if this is a new sandbox, and the session's last command ran in an "
            "earlier one. A private /tmp was empty when the sandbox started, and servers on the "
            "loopback of the earlier sandbox cannot be reached. Left out otherwise."
        ),
    ] = False


Enforcement: TypeAlias = Annotated[
    EnforcedSandbox | None,
    Meta(description="What its sandbox enforces. Left out for a command without a sandbox."),
]


class Denied(Result):
    """What the sandbox of a command has refused. More kinds may come."""

    kind: Annotated[Literal["network"], Meta(description="network: a connection to a host.")]
    host: Annotated[
        str,
        Meta(description="The name or address. *: all hosts beyond the first hundred."),
    ]
    port: Annotated[int, Meta(description="The port. 0 for the host *.")]
    count: Annotated[int, Meta(description="How many times.")]
    reason: Annotated[
        Literal["not_listed", "private_address", "full"],
        Meta(
            description="not_listed: the host is not in hosts, or not with this port. "
            "private_address: the name is in hosts, but all its addresses are private and none of "
            "them is. full: too many connections are open."
        ),
    ]


Denials: TypeAlias = Annotated[
    list[Denied] | None,
    Meta(
        description="What the command and its processes wanted from the network and did not get, "
        "so far. Only for the network hosts. Left out if nothing was refused."
    ),
]
