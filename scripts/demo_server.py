"""What `make demo` starts and stops: a scratch database and the product's processes on it.

On SQLite one `--role all` server over a file. On OceanBase an engine of its own, a migration, one
`--role api` server and one controller that starts the workers. Everything is stopped by its process id
and lives in one scratch folder. Decides nothing about what the demo shows.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import demo_material as material
import demo_mysql as mysql

BIN = Path(os.environ.get("CARGO_TARGET_DIR", material.ROOT / "target")) / "release"
SEEKDB = material.ROOT / "scripts" / "seekdb.sh"
READY_SECONDS = 15
REQUEST_SECONDS = 10


class Failure(Exception):
    """The demo cannot go on; the text says why."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class SqliteFile:
    """A scratch database file; one server does everything."""

    programs = (("powercontext-api-server", "--role", "all"),)

    def __init__(self, folder: Path):
        self.path = folder / "powercontext.sqlite3"
        self.url = f"sqlite://{self.path}"

    def prepare(self, environment: dict) -> None:
        """The server makes the file and migrates it when it starts."""

    def rows(self, sql: str, *values) -> list:
        """Rows of the database file, opened read-only."""
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def stop(self) -> None:
        """A file needs none."""


class OceanBase:
    """An engine of its own; API and background work are separate processes."""

    programs = (("powercontext-api-server", "--role", "api"), ("powercontext-controller", "--launcher", "process"))
    name = "powercontext"

    def __init__(self, folder: Path):
        self.folder = folder / "seekdb"
        self.address = ("127.0.0.1", free_port())
        self.url = f"mysql://root@127.0.0.1:{self.address[1]}/{self.name}"

    def prepare(self, environment: dict) -> None:
        print("Starting an OceanBase engine.", flush=True)
        started = subprocess.run(["bash", SEEKDB, "start", self.folder, str(self.address[1])],
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if started.returncode:
            raise Failure(started.stderr.strip())
        migrated = subprocess.run([BIN / "powercontext-api-server", "migrate"], env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
        if migrated.returncode:
            raise Failure("the migration failed: " + migrated.stderr.strip().rpartition("\n")[2])

    def rows(self, sql: str, *values) -> list:
        """Rows as the SQLite file gives them, with `?` where a value belongs."""
        parts = sql.split("?")
        filled = parts[0] + "".join(mysql.quoted(value) + part for value, part in zip(values, parts[1:]))
        return mysql.query(self.address, self.name, filled)

    def stop(self) -> None:
        subprocess.run(["bash", SEEKDB, "stop", self.folder], stdin=subprocess.DEVNULL)


class Server:
    """The product over a scratch database, reached over HTTP."""

    def __init__(self, keep: bool, database: str):
        self.keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="powercontext-demo-"))
        self.database = {"sqlite": SqliteFile, "oceanbase": OceanBase}[database](self.folder)
        self.log = self.folder / "server.log"
        self.processes: list[subprocess.Popen] = []
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("POWERCONTEXT_SERVER_")}
        self.environment |= {
            "POWERCONTEXT_SERVER_HTTP_HOST": "127.0.0.1",
            "POWERCONTEXT_SERVER_HTTP_PORT": str(port),
            "POWERCONTEXT_SERVER_DATABASE_URL": self.database.url,
            "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL": "builtin:extractive",
            "POWERCONTEXT_SERVER_LOG_FORMAT": "json",
            "POWERCONTEXT_SERVER_LOG_LEVEL": "info",
        }

    def start(self) -> None:
        """Starts everything and waits until requests are answered."""
        self.database.prepare(self.environment)
        for program, *arguments in self.database.programs:
            port = {} if not self.processes else {"POWERCONTEXT_SERVER_HTTP_PORT": str(free_port())}
            # All processes append to one log, a line at a time.
            with self.log.open("ab") as log:
                self.processes.append(subprocess.Popen(
                    [BIN / program, *arguments], env=self.environment | port, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=self.keep))
        self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                if self.call("GET", "/health/ready")["status"] == "ready":
                    return
            except (OSError, Failure):
                pass
            time.sleep(0.05)
        raise Failure(f"the server did not become ready within {READY_SECONDS} seconds")

    def check_alive(self) -> None:
        for process in self.processes:
            if process.poll() is not None:
                raise Failure(f"{Path(process.args[0]).name} ended with status {process.returncode}")

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body, ensure_ascii=False).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise Failure(f"{method} {path} answered {error.code}: {said}") from None

    def windows(self) -> int:
        """Windows published so far, counted from the structured log."""
        count = 0
        with self.log.open(encoding="utf-8", errors="replace") as log:
            for line in log:
                count += '"window_published"' in line
        return count

    def closed_frontier(self) -> str | None:
        """The code of a frontier that was closed, from the structured log; `None` while all go on."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            for line in log:
                if '"frontier_terminal"' in line:
                    try:
                        return json.loads(line).get("error_code") or "no code"
                    except ValueError:
                        return None  # the line is still being written
        return None

    def how_to_stop(self) -> str:
        """The commands that end what KEEP=1 left running."""
        steps = ["kill " + " ".join(str(process.pid) for process in self.processes)]
        if isinstance(self.database, OceanBase):
            steps.append(f"bash {SEEKDB} stop {self.database.folder}")
        return " && ".join([*steps, f"rm -r {self.folder}"])

    def stop(self) -> None:
        """Stops the processes in the reverse order of their start, then the database; removes the data."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.database.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int = 20) -> str:
        """The newest log lines, answered requests apart."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join([line for line in text.splitlines() if '"http.request"' not in line][-lines:])


def complain_about_missing_programs(database: str) -> bool:
    """Says which program is not built, if one is not."""
    needed = {program for program, *_ in (OceanBase if database == "oceanbase" else SqliteFile).programs}
    for program in sorted(needed | {"powercontext-worker"}):
        if not (BIN / program).exists():
            print(f"demo: {BIN}/{program} is missing; run `make demo`", file=sys.stderr)
            return True
    return False
