"""`ScriptedSandboxes`: real files, scripted programs."""

import io
import tarfile

import pytest

from verifiers.errors import SandboxError
from verifiers.sandbox import ExecResult, SandboxSpec, ScriptedSandboxes


async def test_scripts_are_found_by_line_then_by_word_then_by_star():
    backend = ScriptedSandboxes({"ls -l": "long", "ls": "short", "*": "any"})
    async with await backend.create() as sandbox:
        assert [(await sandbox.exec(line)).text for line in ("ls -l", "ls x", "cat")] == ["long", "short", "any"]
        assert (await sandbox.exec(["ls", "-l"])).text == "long"
    assert [call.line for call in backend.calls] == ["ls -l", "ls x", "cat", "ls -l"]


async def test_a_program_without_a_script_is_not_found():
    async with await ScriptedSandboxes().create() as sandbox:
        assert (await sandbox.exec("ls")).exit_code == 127


async def test_a_function_sees_the_call_and_its_files():
    async def script(call):
        call.files["/work/out"] = call.stdin + call.env["A"].encode()
        return ExecResult(outcome="nonzero-exit", exit_code=2)

    async with await ScriptedSandboxes(script).create(SandboxSpec(env={"A": "a"})) as sandbox:
        assert (await sandbox.exec("x", stdin="in")).exit_code == 2
        assert await sandbox.read_file("out") == b"ina"


async def test_an_exception_is_the_sandbox_failing():
    async with await ScriptedSandboxes(SandboxError("down")).create() as sandbox:
        with pytest.raises(SandboxError, match="down"):
            await sandbox.exec("x")


async def test_files_behave_as_in_a_sandbox():
    backend = ScriptedSandboxes()
    async with await backend.create(SandboxSpec(files={"d/a": b"1"})) as sandbox:
        assert await sandbox.read_file("/work/d/a") == b"1"
        await sandbox.put_archive(await sandbox.get_archive("d"), "copy")
        assert await sandbox.read_file("copy/d/a") == b"1"
        with pytest.raises(IsADirectoryError):
            await sandbox.read_file("d")
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("e")
    with pytest.raises(SandboxError, match="ended"):
        await sandbox.read_file("d/a")


async def test_an_archive_that_leads_out_is_refused():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    async with await ScriptedSandboxes().create() as sandbox:
        with pytest.raises(OSError, match="leads out"):
            await sandbox.put_archive(buffer.getvalue(), "in")


async def test_one_key_is_one_sandbox_and_a_run_is_closed_together():
    backend = ScriptedSandboxes()
    spec = SandboxSpec(key="k", run_id="r")
    first = await backend.create(spec)
    assert await backend.create(spec) is first
    assert await backend.close_run("r") == 1
    assert first.is_closed


async def test_a_process_plays_its_script_on_what_it_was_told():
    backend = ScriptedSandboxes(lambda call: call.stdin.decode().upper())
    async with await backend.create() as sandbox:
        process = await sandbox.open_process(["shout"])
        await process.write(b"one ")
        await process.write(b"two")
        assert await process.read(4) == b"ONE "
        assert await process.read() == b"TWO"
        assert await process.read() == b""
        assert (await process.wait()).ok


async def test_run_once_is_the_same_for_every_backend():
    backend = ScriptedSandboxes(lambda call: call.files["/tmp/main.py"].decode() + call.env["A"])
    assert (await backend.run_once("text ", env={"A": "a"})).text == "text a"
    assert all(sandbox.is_closed for sandbox in backend.sandboxes)
