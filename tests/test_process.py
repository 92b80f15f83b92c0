"""Children that answer, crash, hang, flood or grow: each end is an outcome, and none outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.process import TAIL_LINES, Limits, Outcome, run_child

ROOT = Path(__file__).resolve().parent.parent
MEBIBYTE = 1024**2
Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a piece of Python as a child; ``serve`` is there to answer with."""

    def call(code: str, request: object = None, **options: object) -> Outcome:
        head = "from engine.worker.child import serve\n"
        argv = [sys.executable, "-c", head + textwrap.dedent(code)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return run_child(argv, request or {}, log=tmp_path / "child.log", env=env, **options)  # type: ignore[arg-type]

    return call


def bare(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", textwrap.dedent(code)]


def test_answer_comes_back(run: Run) -> None:
    outcome = run("serve(lambda request, channel: {'twice': request['n'] * 2})", {"n": 21})
    assert (outcome.kind, outcome.returncode, outcome.result) == ("ok", 0, {"twice": 42})
    assert outcome.describe().startswith("finished after ")
    assert 5 * MEBIBYTE < outcome.peak_bytes < 100 * MEBIBYTE


def test_a_large_request_and_a_large_answer(run: Run) -> None:
    outcome = run("serve(lambda request, channel: request['text'] * 3)", {"text": "x" * 5_000_000})
    assert outcome.kind == "ok"
    assert outcome.result == "x" * 15_000_000


def test_messages_arrive_in_order_and_prints_go_to_the_log(run: Run, tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []
    outcome = run(
        """
        import os
        def answer(request, channel):
            for n in range(3):
                channel.send("progress", step=n)
                print("foreign", n)
            os.write(1, b"native\\n")
            return None
        serve(answer)
        """,
        on_message=seen.append,
    )
    assert outcome.kind == "ok"
    assert outcome.result is None
    assert seen == [{"kind": "progress", "step": n} for n in range(3)]
    log = (tmp_path / "child.log").read_text()
    assert "native" in log
    assert "foreign 2" in log


def test_segfault(run: Run) -> None:
    outcome = run("import ctypes\nctypes.string_at(0)")
    assert (outcome.kind, outcome.returncode) == ("signal", -signal.SIGSEGV)
    assert outcome.describe().startswith("killed by signal 11 (segmentation fault) after ")


def test_crash_after_the_answer_is_not_ok(run: Run) -> None:
    outcome = run("serve(lambda request, channel: 7)\nimport os\nos.abort()")
    assert (outcome.kind, outcome.result) == ("signal", 7)


def test_exit_code_without_a_result(run: Run) -> None:
    outcome = run("import sys\nprint('last words', file=sys.stderr)\nsys.exit(3)")
    assert (outcome.kind, outcome.returncode, outcome.answered) == ("exit", 3, False)
    assert outcome.log_tail == ("last words",)
    assert outcome.describe().startswith("ended with exit code 3 without a result after ")


def test_exit_0_without_a_result_is_not_ok(run: Run) -> None:
    outcome = run("pass")
    assert (outcome.kind, outcome.returncode) == ("exit", 0)


def test_exit_code_after_a_result_is_not_ok(run: Run) -> None:
    outcome = run("serve(lambda request, channel: 7)\nraise SystemExit(1)")
    assert (outcome.kind, outcome.result, outcome.answered) == ("exit", 7, True)
    assert outcome.describe().startswith("ended with exit code 1 after ")


def test_hang_is_stopped(run: Run) -> None:
    outcome = run("import time\ntime.sleep(60)", limits=Limits(seconds=0.5))
    assert outcome.kind == "timeout"
    assert outcome.seconds < 5
    assert outcome.describe() == "no answer within 0.5 s, stopped"


def test_hang_that_ignores_sigterm_is_killed(run: Run) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    outcome = run(code, limits=Limits(seconds=0.5))
    assert (outcome.kind, outcome.returncode) == ("timeout", -signal.SIGKILL)


def test_memory_limit(run: Run) -> None:
    code = "import time\nx = bytearray(300 << 20)\ntime.sleep(60)"
    outcome = run(code, limits=Limits(seconds=30, bytes=200 * MEBIBYTE))
    assert outcome.kind == "memory"
    assert outcome.peak_bytes > 200 * MEBIBYTE
    assert outcome.describe().endswith(" MiB, limit 200 MiB, stopped")


def test_memory_limit_counts_descendants(run: Run) -> None:
    code = """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import time; x = bytearray(300 << 20); time.sleep(60)"])
    """
    outcome = run(code, limits=Limits(seconds=30, bytes=200 * MEBIBYTE))
    assert outcome.kind == "memory"


def test_peak_memory_of_a_short_child_in_a_large_parent(run: Run) -> None:
    ballast = bytearray(400 * MEBIBYTE)
    outcome = run("import time\nx = bytearray(150 << 20)\ntime.sleep(0.2)\nserve(lambda request, channel: 0)")
    assert len(ballast) > 0
    assert 150 * MEBIBYTE < outcome.peak_bytes < 250 * MEBIBYTE


@pytest.mark.parametrize(
    "garbage",
    ["not json", "{broken", "[1, 2]", '{"no": "kind"}', '{"kind": 3}', '"text"', "\\xff\\xfe", "{" * 5000],
)
def test_garbage_on_the_message_stream(run: Run, tmp_path: Path, garbage: str) -> None:
    outcome = run(f"import os\nos.write(1, b'{garbage}\\n')\nserve(lambda request, channel: 1)")
    assert (outcome.kind, outcome.result) == ("ok", 1)
    assert (tmp_path / "child.log").stat().st_size >= 3


def test_100_megabytes_of_output(run: Run, tmp_path: Path) -> None:
    code = """
        import sys
        for _ in range(50_000):
            sys.stdout.write("x" * 999 + "\\n")
            sys.stderr.write("y" * 999 + "\\n")
        sys.stdout.flush()
        serve(lambda request, channel: "done")
    """
    outcome = run(code, limits=Limits(seconds=60))
    assert (outcome.kind, outcome.result) == ("ok", "done")
    assert (tmp_path / "child.log").stat().st_size == 100_000_000
    assert len(outcome.log_tail) == TAIL_LINES


def test_foreign_code_cannot_forge_a_result(run: Run) -> None:
    code = """
        import os
        def answer(request, channel):
            os.write(1, b'{"kind": "result", "value": "forged"}\\n')
            print('{"kind": "result", "value": "forged"}', flush=True)
            return "true"
        serve(answer)
    """
    assert run(code).result == "true"


def test_only_the_first_result_counts(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"kind": "result", "value": n}) + "\n" for n in (1, 2))
    outcome = run_child(bare(f"import sys; sys.stdout.write({lines!r})"), {}, log=tmp_path / "log")
    assert (outcome.kind, outcome.result) == ("ok", 1)


def test_result_without_a_last_newline(tmp_path: Path) -> None:
    outcome = run_child(bare('print(\'{"kind": "result", "value": 3}\', end=\'\')'), {}, log=tmp_path / "log")
    assert (outcome.kind, outcome.result) == ("ok", 3)


def test_child_that_closes_its_stdout_early(tmp_path: Path) -> None:
    code = "import os, time; os.close(1); time.sleep(0.3); os._exit(5)"
    outcome = run_child(bare(code), {}, log=tmp_path / "log")
    assert (outcome.kind, outcome.returncode) == ("exit", 5)


def test_an_old_log_is_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "child.log").write_text("old")
    assert run("pass").log_tail == ()


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    before = len(psutil.Process().children())
    with pytest.raises(FileNotFoundError):
        run_child([str(tmp_path / "none")], {}, log=tmp_path / "log")
    assert len(psutil.Process().children()) == before


def test_an_exception_in_the_callback_ends_the_child(run: Run) -> None:
    def fail(message: dict[str, object]) -> None:
        raise KeyboardInterrupt(message["pid"])

    code = """
        import os, time
        serve(lambda request, channel: (channel.send("hello", pid=os.getpid()), time.sleep(60)))
    """
    with pytest.raises(KeyboardInterrupt) as caught:
        run(code, on_message=fail)
    assert gone([int(str(caught.value))])


def test_what_a_child_leaves_running_ends_with_it(run: Run) -> None:
    code = """
        import subprocess, sys
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        serve(lambda request, channel: sleeper.pid)
    """
    outcome = run(code)
    assert outcome.kind == "ok"
    assert gone([outcome.result])


def test_timeout_ends_descendants_in_other_sessions(run: Run, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
        import subprocess, sys, time
        args = [sys.executable, "-c", "import time; time.sleep(60)"]
        sleeper = subprocess.Popen(args, start_new_session=True)
        open({str(note)!r}, "w").write(str(sleeper.pid))
        time.sleep(60)
    """
    assert run(code, limits=Limits(seconds=1)).kind == "timeout"
    assert gone([int(note.read_text())])


PARENT = """
import sys
from pathlib import Path
from engine.process import run_child
CHILD = '''
import os, subprocess, sys, time
sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
Path = sys.argv[1]
with open(Path + ".part", "w") as note:
    note.write(f"{os.getpid()} {sleeper.pid}")
os.rename(Path + ".part", Path)
time.sleep(60)
'''
run_child([sys.executable, "-S", "-c", CHILD, sys.argv[1]], {}, log=Path(sys.argv[1] + ".log"))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_child_outlives_a_killed_parent(tmp_path: Path, number: int) -> None:
    note = tmp_path / "pids"
    argv = [sys.executable, "-c", PARENT, str(note)]
    parent = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    try:
        wait_until(note.exists)
        children = [int(pid) for pid in note.read_text().split()]
        assert all(psutil.pid_exists(pid) for pid in children)
        parent.send_signal(number)
        parent.wait(timeout=10)
        assert gone(children)
    finally:
        parent.kill()
        parent.wait()


def gone(pids: list[int]) -> bool:
    return wait_until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
