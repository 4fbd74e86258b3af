"""Package managers work in a sandbox that writes only to its workspace and reaches one registry."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from sandboxes import configure, directory_for_workspaces, served, why_impossible
from support import Json, RawDaemon, raw_daemon

pytestmark = pytest.mark.slow

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)


class Registry(NamedTuple):
    """A stand-in for a registry, on the loopback of the machine. It serves the directory `path`."""

    path: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, name: str, content: bytes | str | Json) -> bytes:
        if isinstance(content, dict):
            content = json.dumps(content)
        if isinstance(content, str):
            content = content.encode()
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(content)
        return content


@pytest.fixture
def registry() -> Iterator[Registry]:
    with directory_for_workspaces() as path, served(path) as port:
        yield Registry(path, port)


@pytest.fixture
def daemon(workspace: Path, registry: Registry) -> Iterator[RawDaemon]:
    """A daemon whose session `main` can reach only the registry."""
    with raw_daemon(cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[f"127.0.0.1:{registry.port}"])
        yield daemon


def works(command: str) -> bool:
    """Return whether a program is installed and starts."""
    if shutil.which(command) is None:
        return False
    return subprocess.call([command, "--version"], stdout=subprocess.DEVNULL) == 0


def packed(directory: str, files: Mapping[str, str]) -> bytes:
    """Return an archive like those that package managers make."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{directory}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def run(daemon: RawDaemon, command: str) -> Json:
    """Run a command that must succeed. The home directory of the command is in the workspace."""
    result = daemon.bash(f"export HOME=$PWD/home; {command}", timeout=120_000)
    assert result["exitCode"] == 0, result
    assert result["sandbox"]["network"] == "hosts"
    return result


@pytest.mark.skipif(not works("npm"), reason="needs npm")
def test_npm_installs_from_a_listed_registry(
    daemon: RawDaemon, workspace: Path, registry: Registry
) -> None:
    description = {"name": "shown", "version": "1.0.0", "bin": "run.js"}
    script = "#!/usr/bin/env node\nconsole.log('installed');\n"
    files = {"package.json": json.dumps(description), "run.js": script}
    archive = registry.put("archives/shown-1.0.0.tgz", packed("package", files))
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    where = {"tarball": f"{registry.url}/archives/shown-1.0.0.tgz", "integrity": f"sha512-{digest}"}
    version = {**description, "dist": where}
    registry.put(
        "shown", {"name": "shown", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    )
    (workspace / "package.json").write_text('{"name": "own", "version": "1.0.0"}')
    npm = "npm --no-audit --no-fund --no-update-notifier --fetch-retries 0"
    run(daemon, f"{npm} --registry {registry.url}/ install shown")
    assert (workspace / "node_modules/shown/run.js").read_text() == script
    assert run(daemon, "npx --offline shown")["stdout"] == "installed\n"
    # The proxy refuses a registry that is not listed, and the result names the registry.
    command = f"export HOME=$PWD/home; {npm} --registry http://registry.invalid/ install other"
    result = daemon.bash(command, timeout=120_000)
    assert result["exitCode"] != 0
    assert {each["host"] for each in result["denied"]} == {"registry.invalid"}


@pytest.mark.skipif(not works("cargo"), reason="needs cargo")
def test_cargo_builds_with_a_listed_registry(
    daemon: RawDaemon, workspace: Path, registry: Registry
) -> None:
    manifest = '[package]\nname = "shown"\nversion = "1.0.0"\nedition = "2021"\n'
    source = 'pub fn shown() -> &\'static str { "built" }\n'
    files = {"Cargo.toml": manifest, "src/lib.rs": source}
    archive = registry.put("crates/shown/1.0.0/download", packed("shown-1.0.0", files))
    registry.put("index/config.json", {"dl": f"{registry.url}/crates"})
    entry: Json = {"name": "shown", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    registry.put("index/sh/ow/shown", {**entry, "cksum": hashlib.sha256(archive).hexdigest()})
    dependency = '[dependencies]\nshown = {version = "1", registry = "listed"}\n'
    for name, text in {
        "Cargo.toml": manifest.replace("shown", "own") + dependency,
        "src/main.rs": 'fn main() { println!("{}", shown::shown()); }\n',
        ".cargo/config.toml": f'[registries.listed]\nindex = "sparse+{registry.url}/index/"\n',
    }.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(text)
    # The sandbox can read the toolchain of the user in its usual place.
    own = "export CARGO_HOME=$HOME/.cargo CARGO_NET_RETRY=0"
    rustup = "export RUSTUP_HOME=${RUSTUP_HOME:-" + str(Path.home() / ".rustup") + "}"
    assert run(daemon, f"{own}; {rustup}; cargo run -q")["stdout"] == "built\n"
    refused = (workspace / ".cargo/config.toml").read_text().replace("127.0.0.1", "index.invalid")
    (workspace / ".cargo/config.toml").write_text(refused)
    command = f"export HOME=$PWD/home; {own}; {rustup}; rm Cargo.lock; cargo fetch"
    result = daemon.bash(command, timeout=120_000)
    assert result["exitCode"] != 0
    assert {each["host"] for each in result["denied"]} == {"index.invalid"}
