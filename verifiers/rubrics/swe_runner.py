"""Runs tests inside a sandbox and reports on them. Its text is sent there, and nothing else of this package.

Two processes. The first is ours alone: it reads its order from stdin, which nobody else can read again, starts the
second one, and writes what that reports, marked with the order's nonce, to a stdout that it alone holds. The second
runs the tests, and with them the code that a model wrote; each line that it reports carries a token, and what its
stdout says counts for nothing.

Tests are read before anything of the repository is imported, and kept: what changes the files later changes no test.
For Python 3.6 and later, since images have their own.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time

TAIL = 20000  # bytes of the output of the tests that are kept
RANK = {"PASSED": 0, "XPASS": 1, "XFAIL": 2, "SKIPPED": 3, "FAILED": 4, "ERROR": 5}


def lead():
    order = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    _close_to_others()
    token = os.urandom(16).hex()
    before = _stamps(order["guarded"], order["folder"])
    report_end, reporter = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-B", "-c", order["source"], "run", str(reporter)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=order["folder"],
        pass_fds=[reporter],
        start_new_session=True,
    )
    os.close(reporter)
    inner = {key: order[key] for key in ("folder", "targets", "runner", "paths")}
    inner["token"] = token
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(inner).encode("utf-8"))
        child.stdin.close()
    except OSError:  # it is gone already; that is seen below
        pass
    lines, output, is_late = _follow(child, report_end, order["timeout_s"])
    report = _read(lines, token)
    report["exit"], report["late"] = child.returncode, is_late
    report["touched"] = [
        name for name, stamp in _stamps(order["guarded"], order["folder"]).items() if stamp != before[name]
    ]
    report["output"] = output[-TAIL:].decode("utf-8", "replace")
    sys.stdout.buffer.write(f"\n{order['nonce']} {json.dumps(report)}\n".encode())
    sys.stdout.buffer.flush()


def _stamps(names, folder):
    """A file's stamp changes with every change of it, and no program can set it back."""
    stamps = {}
    for name in names:
        try:
            found = os.lstat(os.path.join(folder, name))
            is_folder = stat.S_ISDIR(found.st_mode)  # of which the files count
            stamps[name] = None if is_folder else (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
        except OSError:
            stamps[name] = None
    return stamps


def _close_to_others():
    """Programs of the same user can read neither our memory nor our descriptors."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    except Exception:  # no libc to ask: the token and the nonce still have to be guessed
        pass


def _follow(child, report_end, timeout_s):
    """Until the second process has ended, or its time is up; what it leaves behind is ended too."""
    streams = {report_end: bytearray(), child.stdout.fileno(): bytearray()}
    until = time.monotonic() + timeout_s
    is_late, ended_at = False, None
    open_ends = set(streams)
    while ended_at is None or time.monotonic() < ended_at + 1:  # whoever holds a pipe longer has nothing to say
        has_ended = child.poll() is not None
        if has_ended and ended_at is None:
            ended_at = time.monotonic()
        ready = select.select(list(open_ends), [], [], 0 if has_ended else 0.05)[0]
        for end in ready:
            data = os.read(end, 65536)
            if not data:
                open_ends.discard(end)
            streams[end] += data
            if end != report_end and len(streams[end]) > 4 * TAIL:
                del streams[end][: -2 * TAIL]
        if has_ended and not ready:
            break
        if not has_ended and time.monotonic() > until:
            is_late = True
            _end(child)
    _end(child)
    return bytes(streams[report_end]).splitlines(), bytes(streams[child.stdout.fileno()]), is_late


def _end(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.wait()


def _read(lines, token):
    """Statuses by the names of tests: the worst that was said of each, by lines that have the token."""
    statuses, done = {}, None
    for line in lines:
        try:
            said = json.loads(line.decode("utf-8"))
            if said.pop("token") != token:
                continue
        except Exception:
            continue
        if "done" in said:
            done = said["done"]
        else:
            name, status = said["name"], said["status"]
            if RANK[status] >= RANK.get(statuses.get(name, "PASSED"), 0):
                statuses[name] = status
    return {"statuses": statuses, "done": done}


def run(reporter):
    order = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    os.set_inheritable(reporter, False)
    say = _reporter(reporter, order.pop("token"))
    sys.meta_path.insert(0, KeptTests(order["targets"], order["folder"]))
    chosen = order["runner"]
    if chosen == "auto":
        chosen = "pytest" if _has_pytest() else "unittest"
    run_tests = run_pytest if chosen == "pytest" else run_unittest
    code = run_tests(order["targets"], order["folder"], order["paths"], say)
    sys.stdout.flush()
    sys.stderr.flush()
    say({"done": code})
    os._exit(code)


class KeptTests(importlib.abc.MetaPathFinder):
    """Finds modules of the tests as they were at first: those beside them and below, and `conftest.py` above."""

    def __init__(self, targets, folder):
        self._kept = {}
        for path in self._paths(targets, folder):
            try:
                with open(path, "rb") as file:
                    self._kept[path] = self._kept[os.path.realpath(path)] = file.read()
            except OSError:  # it is missed when it is run
                pass

    def _paths(self, targets, folder):
        for target in targets:
            path = os.path.join(folder, target)
            yield path
            beside = path if os.path.isdir(path) else os.path.dirname(path)
            for root, _, files in os.walk(beside if beside != folder else os.devnull):
                for name in files:
                    if name.endswith(".py"):
                        yield os.path.join(root, name)
            while len(path) > len(folder):
                path = os.path.dirname(path)
                yield os.path.join(path, "conftest.py")

    def find_spec(self, fullname, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or spec.origin not in self._kept:
            return None
        loader = KeptLoader(fullname, spec.origin)
        loader.kept = self._kept[spec.origin]
        places = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=places
        )


class KeptLoader(importlib.machinery.SourceFileLoader):
    kept = b""

    def get_code(self, fullname):
        return compile(self.kept, self.path, "exec", dont_inherit=True)


def _has_pytest():
    try:
        import pytest
    except ImportError:
        return False
    return bool(pytest)


def _reporter(reporter, token):
    """Keeps what it calls: the tests may put others in their places."""
    write, dumps = os.write, json.dumps

    def say(what):
        data = (dumps(dict(what, token=token)) + "\n").encode("utf-8")
        while data:
            data = data[write(reporter, data) :]

    return say


def run_pytest(targets, folder, paths, say):
    import unittest.mock  # noqa: F401 - before the repository can offer another one

    import pytest

    class Reports:
        def pytest_runtest_logreport(self, report):
            status = _status(report)
            if status is not None:
                say({"name": report.nodeid, "status": status})

        def pytest_collectreport(self, report):
            if report.failed:
                say({"name": report.nodeid, "status": "ERROR"})

    sys.path[0:0] = paths
    options = ["--rootdir", folder, "-rN", "--tb=short", "--color=no"]
    options += ["--continue-on-collection-errors"]  # else one file that cannot be imported hides what all others say
    return int(pytest.main(options + targets, plugins=[Reports()]))


def _status(report):
    is_expected = hasattr(report, "wasxfail")
    if report.failed:
        return "FAILED" if report.when == "call" else "ERROR"
    if report.skipped:  # only a mark of the test's own expects a failure: any code can call pytest.xfail()
        return "XFAIL" if is_expected and "xfail" in report.keywords else "SKIPPED"
    if report.passed and report.when == "call":
        return "XPASS" if is_expected else "PASSED"
    return None


def run_unittest(targets, folder, paths, say):
    import importlib
    import inspect
    import unittest
    import unittest.mock

    class Result(unittest.TextTestResult):
        def _tell(self, test, status):
            say({"name": names.get(id(test), str(test)), "status": status})

        def addSuccess(self, test):
            unittest.TextTestResult.addSuccess(self, test)
            self._tell(test, "PASSED")

        def addFailure(self, test, err):
            unittest.TextTestResult.addFailure(self, test, err)
            self._tell(test, "FAILED")

        def addError(self, test, err):
            unittest.TextTestResult.addError(self, test, err)
            self._tell(test, "FAILED")

        def addSkip(self, test, reason):
            unittest.TextTestResult.addSkip(self, test, reason)
            self._tell(test, "SKIPPED")

        def addExpectedFailure(self, test, err):
            unittest.TextTestResult.addExpectedFailure(self, test, err)
            self._tell(test, "XFAIL")

        def addUnexpectedSuccess(self, test):
            unittest.TextTestResult.addUnexpectedSuccess(self, test)
            self._tell(test, "XPASS")

        def addSubTest(self, test, subtest, err):
            unittest.TextTestResult.addSubTest(self, test, subtest, err)
            if err is not None:
                self._tell(test, "FAILED")

    names, suite = {}, unittest.TestSuite()
    loader = unittest.TestLoader()
    runner = unittest.TextTestRunner(resultclass=Result)  # pyright: ignore[reportArgumentType]
    sys.path[0:0] = paths
    for path in _test_files(targets):
        try:
            module = importlib.import_module(path[: -len(".py")].replace("/", "."))
        except BaseException as error:
            sys.stderr.write(f"{path}: {error!r}\n")
            say({"name": path, "status": "ERROR"})
            continue
        for name, value in sorted(vars(module).items()):
            if isinstance(value, type) and issubclass(value, unittest.TestCase):
                for method in loader.getTestCaseNames(value):
                    test = value(method)
                    names[id(test)] = f"{path}::{name}::{method}"
                    suite.addTest(test)
            elif name.startswith("test") and inspect.isfunction(value) and not inspect.signature(value).parameters:
                test = unittest.FunctionTestCase(value)
                names[id(test)] = f"{path}::{name}"
                suite.addTest(test)
    kept = list(suite)  # so that no number is used twice
    result = runner.run(suite)
    return 0 if result.wasSuccessful() and kept else 1


def _test_files(targets):
    for target in targets:
        if os.path.isdir(target):
            for root, folders, files in os.walk(target):
                folders.sort()
                for name in sorted(files):
                    if name.startswith("test") and name.endswith(".py"):
                        yield os.path.join(root, name)
        else:
            yield target


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(int(sys.argv[2]))
    else:
        lead()
