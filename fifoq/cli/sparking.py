"""The work of the verbs `fifoq spark`: a session, a job in it, and how both are stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any, NoReturn, TypeVar

from fifoq.cli.frame import Ended, Status

R = TypeVar("R")


def on_spark(master: str, work: Callable[[Any], R]) -> R:
    """Do work with a session of Spark. Ctrl-C and SIGTERM stop both.

    On a thread of its own: an interrupt in the middle of a call to the JVM breaks the connection,
    which pyspark tells in tracebacks, and pyspark's own answer to Ctrl-C is such a call.
    """
    session: list[Any] = []
    outcome: Future[R] = Future()

    def do() -> None:
        try:
            session.append(_session(master))
            _make_active(session[0])
            outcome.set_result(work(session[0]))
        except BaseException as error:
            outcome.set_exception(error)

    worker = Thread(target=do, name="fifoq-spark", daemon=True)
    with _stoppable():
        worker.start()
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():
                for spark in session:
                    _stop(spark)
                    worker.join()
            raise


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does; the second signal ends the process at once.

    That is safe too: the same command goes on from a kill as well.
    """

    def terminated(number: int, frame: object) -> NoReturn:
        leave_at_once()
        raise Ended(Status.TERMINATED)

    def interrupted(number: int, frame: object) -> NoReturn:
        leave_at_once()
        raise KeyboardInterrupt

    def leave_at_once() -> None:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)

    handlers = {signal.SIGINT: interrupted, signal.SIGTERM: terminated}
    before = {number: signal.signal(number, does) for number, does in handlers.items()}
    try:
        yield
    finally:
        for number, did in before.items():
            signal.signal(number, did)


def _make_active(spark: Any) -> None:
    """Let it be the session of this thread: one that was there before is that of another thread.

    Spark looks for formats in the active session, not in the one that it is called on.
    """
    sessions = type(spark)._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)


def _stop(spark: Any) -> None:
    """End a session in the middle of its work, without a word."""
    # Spark and its workers would tell at length that they were stopped: tracebacks of broken pipes.
    spark._jvm.java.lang.System.err.close()
    spark.stop()


def _session(master: str) -> Any:
    from fifoq.spark import JavaMissing, session

    try:
        return session("fifoq", master)
    except JavaMissing as error:
        raise Ended(Status.FAILED, str(error), kind="JavaMissing") from None
