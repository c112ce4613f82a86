"""Many runs, several at a time, each in a process of its own; running them again finishes what is missing."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from fedgala.api import train
from fedgala.config import RunConfig
from fedgala.run import Run

Progress = Callable[[int, int], None]  # rounds done, rounds in all


def carry_out(configs: Sequence[RunConfig], jobs: int, progress: Progress) -> list[Run]:
    """All runs, `jobs` at a time; a run that fails does not stop the others.

    Raises:
        FedgalaError: the first failure, when all others are done.
    """
    runs = [Run(config, config.folder) for config in configs]
    total = sum(config.federation.rounds for config in configs)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[None]] = [pool.submit(_one, run.config) for run in runs if not run.finished]
        try:
            while any(not future.done() for future in futures):
                progress(sum(_rounds_done(run) for run in runs), total)
                time.sleep(0.5)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    progress(total, total)
    failures = [future.exception() for future in as_completed(futures)]
    for failure in failures:
        if failure is not None:
            raise failure
    return runs


def _one(config: RunConfig) -> None:
    train(config)


def _rounds_done(run: Run) -> int:
    if run.finished:
        return run.config.federation.rounds
    return max((record["round"] for record in run.records.read()), default=0)
