"""Runs cases in processes of their own, so that a crash does not affect other cases."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from support.variant import environment

TOOLS = Path(__file__).parent.parent
# A case that takes longer counts as hanging.
MINUTES = 20


@dataclass(frozen=True)
class Result:
    """The outcome of one seed's case.

    Attributes:
        failures: Sentences; empty if nothing is wrong.
        void: Whether MLX itself raises or crashes, so that nothing was compared.
    """

    seed: int
    failures: list[str]
    void: bool = False


class Worker:
    """A process of worker.py, restarted when it has died."""

    def __init__(self, kind: str, backend: str, variables: dict[str, str], main: tuple[str, ...]):
        self._variables = variables
        self._command = [sys.executable, *main, kind, "--backend", backend]
        self._process = None
        self._said = tempfile.TemporaryFile("w+")  # output of a crash; another run shows it

    def run(self, seed: int) -> Result:
        fresh = self._process is None
        result = self._run(seed)
        if not result.void or self._process or fresh:
            return result
        # MLX's own run of this case has crashed, or an earlier case has corrupted memory.
        result = self._run(seed)
        if self._process:
            return Result(seed, [*result.failures, "crashed after other cases, and not alone"])
        return result

    def _run(self, seed: int) -> Result:
        self._start()
        process = self._process
        timer = threading.Timer(60 * MINUTES, process.kill)
        timer.start()
        stage, told = None, ""
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            while isinstance(told, str):
                stage, told = told, json.loads(process.stdout.readline() or "null")
        except BrokenPipeError:
            told = None
        hung = not timer.is_alive()
        timer.cancel()
        if told:
            return Result(seed, **told)
        self.close()
        if stage == "stock":
            return Result(seed, [], void=True)
        return Result(seed, [f"hung for {MINUTES} minutes" if hung else died(process.returncode)])

    def _start(self) -> None:
        if self._process:
            return
        self._process = subprocess.Popen(
            self._command,
            cwd=TOOLS,
            env=self._variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        if not self._process.stdout.readline():
            self._said.seek(0)
            raise RuntimeError(f"{' '.join(self._command)} does not start: {self._said.read()}")

    def close(self) -> None:
        if self._process:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None


def died(status: int) -> str:
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    return f"the process ended with status {status}"


def run(
    kind: str,
    backend: str,
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    variables: dict[str, str] | None = None,
    main: tuple[str, ...] = ("-m", "fuzz.worker"),
) -> Iterator[Result]:
    """The results of all seeds, as they finish; ``main`` is what Python runs in the workers."""
    variables = variables or environment()
    left, lock, results = iter(seeds), threading.Lock(), Queue()

    def take_turns():
        worker = Worker(kind, backend, variables, main)
        try:
            while True:
                with lock:
                    seed = next(left, None)
                if seed is None:
                    break
                results.put(worker.run(seed))
        except RuntimeError as error:
            results.put(error)
        finally:
            worker.close()
            results.put(None)

    threads = [threading.Thread(target=take_turns, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    working = jobs
    while working:
        result = results.get()
        if result is None:
            working -= 1
        elif isinstance(result, RuntimeError):
            raise result
        else:
            yield result
