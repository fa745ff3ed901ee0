"""The command line: `fifoq VERB PATH ...`. It translates, and nothing else.

How a verb is added
-------------------

A verb is a function with typer's annotations. It stands in a module of verbs beside others of its
kind, and that module has a function `add_to(app)` that `fifoq.cli.app` calls:

    def add_to(app: typer.Typer) -> None:
        verb(app, "shrink", example="fifoq shrink data/orders")(shrink)

    def shrink(path: StorePath, queue: QueueName = DEFAULT_QUEUE, json: Json = False) -> None:
        \"\"\"One line for `fifoq --help`.

        What it does, what holds on return, which status means what.
        \"\"\"
        from fifoq.cli.access import session          # nothing heavy at the top of the module
        ...

- The path comes first, the queue by `--queue`; shared arguments are in `arguments`. Every verb has
  `json: Json`, and an example that can be typed.
- Modules of verbs import typer, `arguments` and `frame` at the top, everything else where it is
  needed: `fifoq --help` builds all verbs and runs none.
- To look: `with access.looking(path) as view`, beside whoever owns the store. To change:
  `async with access.session(path) as asked` inside `frame.run(...)`, then
  `await asked.ask(request, AnswerType)`. The session owns the store if it is free and asks the
  owner if it is live. A new request is a Struct in `fifoq.control.messages` (add it to `Request`)
  and a case in `fifoq.control.desk`.
- Errors of the store, OSError and ValueError may fly: `frame` turns them into one line and a
  status (`frame.Status`). To end with a status of your own raise `frame.Ended(status, text)`.
  With `--json` the same goes to stdout as `{"error": ..., "kind": ..., "status": ...}`.
- `output` prints: `print_json`, `print_table`, `print_facts`, `RecordWriter`. What is asked for
  goes to stdout, the rest to stderr; progress is shown on a terminal only.
- docs/reference/cli.md is written by `python -m fifoq.cli.reference`; a test compares.
"""

from fifoq.cli.app import app, main

__all__ = ["app", "main"]
