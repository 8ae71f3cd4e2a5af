"""Clients of memcached, each with its own tests where it has some for a live server.

python memcached_suites.py CLIENT PORT PROGRAM FOLDER

PORT is where memcached's protocol is spoken, PROGRAM a program that takes memcached's command line,
for tests that start a server of their own; FOLDER keeps what is fetched. Tests of what only the
binary protocol has are not run. Prints the tests that ran, and whether each has passed, as JSON.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import memcached_sessions

GO_CLIENT = "github.com/bradfitz/gomemcache"
GO_VERSION = "v0.0.0-20260422231931-4d751bb6e37c"
JAVA_CLIENT = "xmemcached"
# Classes with a server; others run the same tests with another hash.
JAVA_TESTS = ["StandardHashMemcachedClientIT", "ConnectionPoolMemcachedClientIT"]
SUITES = Path(os.environ.get("SUITES_DIR", Path.home() / ".cache/kvasir-suites/src"))


class Suite:
    def __init__(self, port, program, folder):
        self.port, self.program, self.folder = port, program, folder

    def source(self, package, version):
        """A copy of a package's source from PyPI, as nobody has changed it."""
        archive = self.folder / f"{package}-{version}.tar.gz"
        if not archive.is_file():
            run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                 ":all:", "--disable-pip-version-check", "-d", self.folder,
                 f"{package}=={version}"])
        fresh = self.folder / f"{package}-{version}"
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(archive) as files:
            files.extractall(self.folder, filter="data")
        return fresh

    def clone(self, owner, name):
        """A copy of a clone, of what no registry has with its tests."""
        if not (SUITES / name).is_dir():
            sys.exit(f"no clone of github:{owner}/{name} in {SUITES}")
        fresh = self.folder / name
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(SUITES / name, fresh)
        return fresh

    def pytest(self, cwd, *options, **env):
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        words = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", f"--junitxml={report}"]
        text = run([*words, "-p", "no:cacheprovider", "--timeout=60", *options], cwd,
                   check=False, **env)
        return junit([report]) or fail(text)


def run(words, cwd=None, check=True, **env):
    done = subprocess.run([str(word) for word in words], cwd=cwd, text=True, env={**os.environ, **{name: str(value) for name, value in env.items()}},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check and done.returncode:
        fail(done.stdout)
    return done.stdout


def fail(text):
    sys.exit(text[-4000:])


def junit(reports):
    """Tests and whether they passed; skipped ones are left out."""
    found = {}
    for report in reports:
        if not report.is_file():
            continue
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is None:
                bad = case.find("failure") is not None or case.find("error") is not None
                found[f"{case.get('classname')}.{case.get('name')}"] = not bad
    return found


def replace(path, old, new):
    text = path.read_text()
    if old not in text:
        sys.exit(f"{path} has no {old}")
    path.write_text(text.replace(old, new))


def pymemcache(suite):
    cwd = suite.source("pymemcache", "4.0.0")
    return suite.pytest(cwd, "pymemcache/test", "-m", "integration", "--server", "127.0.0.1",
                        "--port", suite.port, "-k", "not tls")


def python_memcached(suite):
    cwd = suite.clone("linsomniac", "python-memcached")
    replace(cwd / "tests/test_memcache.py", "127.0.0.1:11211", f"127.0.0.1:{suite.port}")
    return suite.pytest(cwd, "tests", PYTHONPATH=cwd)


def pylibmc(suite):
    """Those that ask for the binary protocol get the other one; `touch` is of the former alone."""
    cwd = suite.source("pylibmc", "1.6.3")
    for path in (cwd / "tests").glob("*.py"):
        path.write_text(path.read_text().replace("binary=True", "binary=False"))
    return suite.pytest(cwd / "tests", "-k", "not touch and not autoconf",
                        MEMCACHED_HOST="127.0.0.1", MEMCACHED_PORT=suite.port)


def django(suite):
    cwd = suite.source("django", "5.2.19") / "tests"
    settings = "from test_sqlite import *\nCACHES = {'default': {'BACKEND': " \
        "'django.core.cache.backends.memcached.%s', 'LOCATION': '127.0.0.1:%s'}}\n"
    found = {}
    for backend in ("PyMemcacheCache", "PyLibMCCache"):
        (cwd / "memcached_settings.py").write_text(settings % (backend, suite.port))
        text = run([sys.executable, "runtests.py", "--settings=memcached_settings", "-v", "2",
                    "--parallel", "1", f"cache.tests.{backend}Tests"], cwd, check=False)
        for name, result in re.findall(r"^(test_\w+) .*?\.\.\. (ok|FAIL|ERROR)$", text, re.M | re.S):
            found[f"{backend}.{name}"] = result == "ok"
        if not found:
            fail(text)
    return found


def gomemcache(suite):
    """Starts servers of its own by the name memcached, over a unix socket and with TLS."""
    cwd = suite.folder / "gomemcache"
    shutil.rmtree(cwd, ignore_errors=True)
    module = run(["go", "mod", "download", "-json", f"{GO_CLIENT}@{GO_VERSION}"],
                 suite.folder, GOFLAGS="-mod=mod")
    shutil.copytree(re.search(r'"Dir": "(.*)"', module).group(1), cwd)
    run(["chmod", "-R", "u+w", cwd])
    replace(cwd / "memcache/memcache_test.go", "localhost:11211", f"localhost:{suite.port}")
    named = suite.folder / "bin"
    named.mkdir(exist_ok=True)
    (named / "memcached").write_text(f'#!/bin/sh\nexec {suite.program} "$@"\n')
    (named / "memcached").chmod(0o755)
    text = run(["go", "test", "-count=1", "-v", "./memcache/..."], cwd, check=False,
               PATH=f"{named}:{os.environ['PATH']}")
    found = re.findall(r"^\s*--- (PASS|FAIL): (\S+)", text, re.M)
    return {name: result == "PASS" for result, name in found} or fail(text)


def xmemcached(suite):
    """Its tests with a server, built by Maven; one asks for the binary protocol."""
    cwd = suite.clone("killme2008", JAVA_CLIENT)
    for path in cwd.glob("src/test/java/**/ConnectionPoolMemcachedClientIT.java"):
        path.write_text(path.read_text().replace("BinaryCommandFactory", "TextCommandFactory"))
    reports = cwd / "target/failsafe-reports"
    shutil.rmtree(reports, ignore_errors=True)
    text = run(["mvn", "-B", "-q", "-Dmaven.compiler.source=7", "-Dmaven.compiler.target=7",
                f"-Dtest.memcached.servers=127.0.0.1:{suite.port}",
                "-Dtest.memcached.host=127.0.0.1", f"-Dtest.memcached.port={suite.port}",
                f"-Dit.test={','.join(JAVA_TESTS)}", "-DfailIfNoTests=false", "test-compile",
                "failsafe:integration-test"], cwd, check=False)
    return junit(reports.glob("TEST-*.xml")) or fail(text)


def php(suite):
    return memcached_sessions.check(suite.port, suite.folder)


CLIENTS = {"pymemcache": pymemcache, "python-memcached": python_memcached, "pylibmc": pylibmc,
           "django": django, "gomemcache": gomemcache, "xmemcached": xmemcached,
           "php-sessions": php}


def main():
    name, port, program, folder = sys.argv[1:]
    folder = Path(folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps(CLIENTS[name](Suite(port, program, folder))))


if __name__ == "__main__":
    main()
