"""Into an instance: one more command, a port, files both ways. Real processes."""

import io
import os
import tarfile
import time
from contextlib import closing

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import InstanceState
from cumulo.engines.protocol import ExecRequest, FilesRequest, PortRequest
from tests.engines.conftest import ROOT, SOMEBODY


@pytest.fixture
def living(bench, runtime):
    """The id of an instance that has said "up"."""
    name = bench.start("living", "echo in-workdir > note; echo in-outputs > $CUMULO_OUTPUT_DIR/note; echo up; sleep 60")
    # Its first words may be read before it is noted that it runs.
    bench.until(name, lambda seen: seen.log_bytes > 0 and seen.state is InstanceState.RUNNING)
    return name


def shell(command, **more):
    return ExecRequest(argv=("/bin/sh", "-c", command), **more)


def everything(stream):
    data = b"".join(iter(stream.read, b""))
    code = stream.exit_code
    stream.close()
    return data, code


# --- exec -------------------------------------------------------------------------------------------------------------


def test_a_command_runs_beside_the_run(bench, living):
    data, code = everything(bench.engine.stream(living, shell("cat note; id -u; echo $CUMULO_RUN_ID $MINE; exit 5")))
    uid = SOMEBODY if ROOT else os.getuid()
    assert (data.decode(), code) == (f"in-workdir\n{uid}\nliving\n", 5)


def test_it_reads_what_is_written_until_the_end(bench, living):
    stream = bench.engine.stream(living, shell("cat; echo end", env=(("A", "b"),)))
    for number in range(100):
        stream.write(b"%d" % number * 1000)
    stream.write_eof()
    data, code = everything(stream)
    assert data == b"".join(b"%d" % number * 1000 for number in range(100)) + b"end\n"
    assert code == 0


def test_a_terminal_has_a_size_and_can_be_resized(bench, living):
    stream = bench.engine.stream(
        living, shell("test -t 0 && stty size; read line; stty size", tty=True, rows=11, columns=33)
    )
    seen = b""
    while b"11 33" not in seen:
        seen += stream.read()
    stream.resize(44, 55)
    stream.write(b"go\n")
    data, code = everything(stream)
    assert b"44 55" in data
    assert code == 0


def test_an_abandoned_command_ends(bench, living):
    stream = bench.engine.stream(living, shell("echo $$; sleep 1234"))
    assert stream.read()
    stream.close()
    stream.close()
    deadline = time.monotonic() + 10
    while "sleep 1234" in commands():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.02)


def commands():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found.append(file.read().replace(b"\0", b" ").decode(errors="replace").strip())
        except OSError:
            continue
    return found


def test_a_command_that_is_not_there_says_so(bench, living):
    data, code = everything(bench.engine.stream(living, ExecRequest(argv=("no-such-thing",))))
    assert b"command not found: no-such-thing" in data
    assert code == 127


@pytest.mark.parametrize("request_", [shell("true"), PortRequest(port=1)])
def test_what_has_ended_takes_no_command_and_no_connection(bench, request_):
    seen, _ = bench.run("over", "true")
    with pytest.raises(CumuloError, match="has ended"):
        bench.engine.stream(seen.instance_id, request_)
    with pytest.raises(KeyError):
        bench.engine.stream("unknown-0-0-0", request_)


# --- ports ------------------------------------------------------------------------------------------------------------

ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
while data := peer.recv(65536):
    peer.sendall(data.upper())
peer.close()
"""


def test_a_port_is_reached(bench, runtime):
    name = bench.start("port", f"python3 - <<'EOF'\n{ECHO}\nEOF\nsleep 5")
    bench.until(name, lambda seen: seen.log_bytes > 0 and seen.state is InstanceState.RUNNING)
    stream = bench.engine.stream(name, PortRequest(port=int(bench.log(name))))
    stream.write(b"hello")
    assert stream.read() == b"HELLO"
    stream.write_eof()
    assert stream.read() == b""
    stream.close()


def test_a_port_where_nobody_listens_is_a_sentence(bench):
    name = bench.start("deaf", "sleep 60")
    bench.until(name, InstanceState.RUNNING)
    with pytest.raises(CumuloError, match="nothing answers on port 1 of the instance"):
        bench.engine.stream(name, PortRequest(port=1))


# --- files ------------------------------------------------------------------------------------------------------------


def members(stream):
    with tarfile.open(fileobj=io.BytesIO(b"".join(iter(stream.read, b"")))) as tar:
        opened = {member.name: tar.extractfile(member) if member.isreg() else None for member in tar}
        found = {name: file.read() if file else None for name, file in opened.items()}
    stream.close()
    return found


def packed(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def get(bench, name, path, area="workdir"):
    return bench.engine.stream(name, FilesRequest(direction="get", path=path, area=area))


def put(bench, name, path, data):
    with closing(bench.engine.stream(name, FilesRequest(direction="put", path=path))) as stream:
        stream.write(data)
        stream.write_eof()
        assert stream.read() == b""


def test_files_are_fetched_while_it_runs_and_after(bench, living):
    assert members(get(bench, living, "note")) == {"note": b"in-workdir\n"}
    assert members(get(bench, living, "", "outputs")) == {"note": b"in-outputs\n"}
    bench.engine.stop(living, 0.0, 1)
    bench.end(living)
    bench.engine.release(living, 1)
    assert members(get(bench, living, ".", "outputs")) == {"note": b"in-outputs\n"}
    assert members(get(bench, living, "note")) == {"note": b"in-workdir\n"}


def test_an_absolute_path_is_the_instances(bench, living):
    workdir = bench.root / "areas" / living / "workdir"
    assert members(get(bench, living, str(workdir / "note"))) == {"note": b"in-workdir\n"}
    with pytest.raises(CumuloError, match="leads out"):
        get(bench, living, "/etc/passwd")


def test_files_are_put_and_belong_to_the_run(bench, living):
    put(bench, living, "new/folder", packed({"a": b"1", "b/c": b"2" * 100_000}))
    data, _ = everything(bench.engine.stream(living, shell("cat new/folder/a; wc -c < new/folder/b/c; stat -c %u new")))
    assert data.decode().split() == ["1100000", str(SOMEBODY if ROOT else os.getuid())]


def test_what_is_not_there_is_a_sentence(bench, living):
    with pytest.raises(CumuloError, match="nothing: no such file or folder"):
        get(bench, living, "nothing/here")


def test_links_lead_nowhere(bench, living):
    everything(bench.engine.stream(living, shell("ln -s /etc out; ln -s /etc/passwd file")))
    with pytest.raises(CumuloError, match="not a folder"):
        get(bench, living, "out/passwd")
    assert members(get(bench, living, "file")) == {"file": None}
    with pytest.raises(CumuloError, match="not a folder"):
        put(bench, living, "out", packed({"cumulo-was-here": b""}))
    assert not os.path.exists("/etc/cumulo-was-here")


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/../../escaped"])
def test_a_tar_that_leads_out_is_refused(bench, living, name):
    with pytest.raises(CumuloError, match="leads out"):
        put(bench, living, "", packed({name: b"x"}))


def test_what_is_no_tar_is_refused(bench, living):
    with pytest.raises(CumuloError, match="not a tar stream"):
        put(bench, living, "", b"this is no tar" * 100)
