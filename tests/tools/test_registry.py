"""`ToolRegistry`: tools by name, for any number of threads."""

from __future__ import annotations

import pytest

from shelld.tools import ToolCategory, ToolError, ToolRegistry
from support import in_threads
from tool_samples import Sample, bash_tool, read_tool, write_tool


@pytest.fixture
def registry() -> ToolRegistry:
    return ToolRegistry()


def test_a_tool_is_registered(registry: ToolRegistry) -> None:
    tool = read_tool()
    registry.register(tool)
    assert (registry.exists("Read"), registry.count()) == (True, 1)
    assert registry.get("Read") is tool
    assert registry.get_or_raise("Read") is tool


def test_many_are_registered_at_once(registry: ToolRegistry) -> None:
    tools = [read_tool(), write_tool(), bash_tool()]
    registry.register_many(tools)
    assert registry.count() == 3
    assert registry.list_all() == tools
    assert registry.list_names() == ["Bash", "Read", "Write"]


def test_duplicate_name_is_refused(registry: ToolRegistry) -> None:
    registry.register(read_tool())
    with pytest.raises(ToolError, match="already registered") as caught:
        registry.register(read_tool())
    assert caught.value.tool_name == "Read"


def test_register_many_registers_all_or_none(registry: ToolRegistry) -> None:
    registry.register(read_tool())
    with pytest.raises(ToolError):
        registry.register_many([write_tool(), read_tool()])
    with pytest.raises(ToolError):
        registry.register_many([write_tool(), write_tool()])
    assert registry.list_names() == ["Read"]


def test_lookup_of_an_unknown_tool_fails(registry: ToolRegistry) -> None:
    assert registry.get("Unknown") is None
    assert registry.exists("Unknown") is False
    with pytest.raises(ToolError, match="not found") as caught:
        registry.get_or_raise("Unknown")
    assert caught.value.tool_name == "Unknown"


def test_a_tool_is_deregistered(registry: ToolRegistry) -> None:
    registry.register(read_tool())
    assert registry.deregister("Read") is True
    assert registry.exists("Read") is False
    assert registry.deregister("Read") is False
    registry.register(read_tool())


def test_aliases_find_tools_and_stay_unlisted(registry: ToolRegistry) -> None:
    tool = Sample("KillShell", aliases=("KillBash", "kill_shell"))
    registry.register(tool)
    assert [registry.get(name) for name in ("KillShell", "KillBash", "kill_shell")] == [tool] * 3
    assert (registry.count(), registry.list_names()) == (1, ["KillShell"])
    for taken in (Sample("kill_shell"), Sample("Other", aliases=("KillShell",))):
        with pytest.raises(ToolError, match="already registered"):
            registry.register(taken)
    assert registry.deregister("KillBash") is True
    assert not any(registry.exists(name) for name in ("KillShell", "KillBash", "kill_shell"))


def test_tools_are_found_by_category(registry: ToolRegistry) -> None:
    read, write, bash = tools = [read_tool(), write_tool(), bash_tool()]
    registry.register_many(tools)
    assert registry.list_by_category(ToolCategory.FILE) == [read, write]
    assert registry.list_by_category(ToolCategory.EXECUTION) == [bash]
    assert registry.list_by_category(ToolCategory.WEB) == []


def test_clearing_forgets_all(registry: ToolRegistry) -> None:
    registry.register_many([read_tool(), Sample(aliases=("say",))])
    registry.clear()
    assert (registry.count(), registry.list_all(), registry.exists("say")) == (0, [], False)


def test_registry_is_shared_until_reset(registry: ToolRegistry) -> None:
    registry.register(read_tool())
    assert ToolRegistry() is registry
    ToolRegistry.reset()
    assert ToolRegistry() is not registry
    assert ToolRegistry().count() == 0


def test_ten_threads_register_and_deregister_without_loss() -> None:
    registries: list[ToolRegistry] = []

    def work(number: int) -> None:
        registry = ToolRegistry()
        registries.append(registry)
        for index in range(1_000):
            tool = Sample(f"tool_{number}_{index}", aliases=(f"alias_{number}_{index}",))
            registry.register(tool)
            assert registry.get(f"alias_{number}_{index}") is tool
            if index % 100 == 0:
                assert registry.count() <= len(registry.list_all()) + 10_000
                names = registry.list_names()
                assert names == sorted(names)
            if index % 2:
                assert registry.deregister(tool.name)

    in_threads(10, work)
    (registry,) = {id(each): each for each in registries}.values()
    expected = {f"tool_{number}_{index}" for number in range(10) for index in range(0, 1_000, 2)}
    assert set(registry.list_names()) == expected
    assert registry.count() == 5_000


def test_only_one_thread_registers_a_name() -> None:
    refused: list[int] = []

    def work(number: int) -> None:
        try:
            ToolRegistry().register(Sample("Wanted"))
        except ToolError:
            refused.append(number)

    in_threads(10, work)
    assert len(refused) == 9
    assert ToolRegistry().count() == 1
