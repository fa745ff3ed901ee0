"""The closing report as one HTML file: figures and charts, nothing from elsewhere."""

from __future__ import annotations

import datetime
import platform
import statistics
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from fifoq.bench.machine import mounted
from fifoq.demo.charts import Line, chart, rates
from fifoq.demo.running import Run
from fifoq.demo.service import ACCOUNTS, CLIENTS

TEAL, AMBER, VIOLET, ROSE = "#0d9488", "#d97706", "#7c3aed", "#e11d48"
BUCKETS: Final = 60

STYLE: Final = """
:root{--ink:#1c2430;--paper:#fff;--soft:#5b6675;--line:#e3e8ee;--good:#0f766e;--bad:#be123c}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#11161d;--soft:#9aa7b5;
--line:#2a333f;--good:#2dd4bf;--bad:#fb7185}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}main{max-width:800px;margin:0 auto;padding:32px 20px}
h1{margin:0 0 4px;font-size:28px}h2{margin:36px 0 8px;font-size:19px}p{margin:6px 0}
.verdict{font-size:19px;font-weight:600;color:var(--good)}.verdict.broken{color:var(--bad)}
.soft,small,figcaption small{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;
margin:20px 0}.card{border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.card b{display:block;font-size:24px;font-variant-numeric:tabular-nums}
.way{display:flex;flex-wrap:wrap;align-items:center;gap:8px;margin:16px 0}
.way span{border:1px solid var(--line);border-radius:8px;padding:8px 12px}
figure{margin:18px 0 26px}figcaption{font-weight:600;margin-bottom:4px}
figcaption span{font-weight:400;margin-left:14px;white-space:nowrap}
figcaption i{display:inline-block;width:12px;height:3px;margin-right:5px;vertical-align:middle}
svg{width:100%;height:auto}.grid{stroke:var(--line)}polyline{stroke-width:2;
stroke-linejoin:round}.mark{stroke:#e11d48;stroke-dasharray:4 3}
text{font-size:11px;fill:var(--soft)}text.mark{fill:#e11d48;stroke:none}
table{border-collapse:collapse;width:100%}td{border-top:1px solid var(--line);padding:7px 4px}
td:last-child{text-align:right;white-space:nowrap}.kept{color:var(--good)}.lost{color:var(--bad)}
code{font-size:90%}
"""


def html(run: Run, command: str) -> str:
    """The whole page."""
    outcome = run.outcome
    assert outcome is not None
    verdict = (
        '<p class="verdict">Nothing confirmed was lost, each is there exactly once, nothing was '
        "invented.</p>"
        if outcome.kept
        else '<p class="verdict broken">A promise was broken.</p>'
    )
    body = [
        "<h1>fifoq demo</h1>",
        verdict,
        _way(run),
        f'<div class="cards">{"".join(_cards(run))}</div>',
        "<h2>While it ran</h2>",
        *_charts(run),
        "<h2>What was promised</h2>",
        _table((text, _kept(broken)) for text, broken in outcome.promises),
        "<h2>What happened</h2>",
        _table((escape(text), f"{second:.1f} s") for second, text in run.events),
        f'<p class="soft">{escape(_origin(run, command))}</p>',
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>fifoq demo</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style><main>{''.join(body)}</main></html>\n"
    )


def _way(run: Run) -> str:
    stages = [
        f"{CLIENTS} clients await each put",
        "durable queue",
        f"{ACCOUNTS} durable actors",
        "ledger",
        "Spark → Parquet" if run.with_spark else "read in Python (no Spark)",
    ]
    return f'<div class="way">{" → ".join(f"<span>{stage}</span>" for stage in stages)}</div>'


def _cards(run: Run) -> Iterable[str]:
    outcome = run.outcome
    assert outcome is not None
    waits = statistics.quantiles([each * 1000 for each in run.books.seconds()], n=100)
    cards = {
        "orders confirmed": f"{len(run.books.confirmed):,}",
        "in the table" if run.with_spark else "in the ledger": f"{outcome.rows:,}",
        "median wait of a put": f"{waits[49]:.1f} ms",
        "99th percentile": f"{waits[98]:.1f} ms",
        "commits": f"{outcome.commits:,}",
        "log": f"{outcome.log_bytes / 1e6:.1f} MB",
    }
    for kill, opened in zip(run.books.kills, run.books.opened[1:], strict=True):
        cards["puts cut short by kill -9"] = f"{kill.under_way}"
        cards["to open it again"] = f"{opened * 1000:.0f} ms"
    return (f'<div class="card"><b>{value}</b>{name}</div>' for name, value in cards.items())


def _charts(run: Run) -> list[str]:
    marks = [(run.second_of(kill.moment), "kill -9") for kill in run.books.kills]
    samples = run.samples
    found = [
        chart(
            "Through the service",
            "orders per second",
            [
                Line("confirmed", TEAL, rates([(s.second, s.confirmed) for s in samples])),
                Line("handled", AMBER, rates([(s.second, s.handled) for s in samples])),
            ],
            marks,
        ),
        chart(
            "In between",
            "orders that wait",
            [Line("in the queue", VIOLET, [(s.second, s.waiting) for s in samples])],
            marks,
        ),
        chart(
            "All so far",
            "orders",
            [
                Line("confirmed", TEAL, [(s.second, s.confirmed) for s in samples]),
                Line("handled", AMBER, [(s.second, s.handled) for s in samples]),
                *(
                    [Line("in Parquet", ROSE, [(s.second, s.rows) for s in samples])]
                    if run.with_spark
                    else []
                ),
            ],
            marks,
        ),
    ]
    found.append(_waits(run))
    return found


def _waits(run: Run) -> str:
    """How long puts waited, as a share of all that waited at most so long."""
    waits = sorted(each * 1000 for each in run.books.seconds())
    end = waits[int(len(waits) * 0.99)]
    counts = Counter(min(BUCKETS - 1, int(each * BUCKETS / end)) for each in waits if each <= end)
    points = [
        (bucket * end / BUCKETS, 100.0 * counts[bucket] / len(waits)) for bucket in range(BUCKETS)
    ]
    line = Line("up to the 99th percentile", TEAL, points)
    return chart("How long a put waits", "percent of puts by milliseconds", [line], by="ms")


def _kept(broken: int) -> str:
    if broken:
        return f'<span class="lost">broken {broken} times</span>'
    return '<span class="kept">kept</span>'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"<tr><td>{first}</td><td>{second}</td></tr>" for first, second in rows)
    return f"<table>{''.join(lines)}</table>"


def _origin(run: Run, command: str) -> str:
    kind, _ = mounted(Path(run.directory))
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return (
        f"{command}, {now}; Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}, the store on {kind}. Figures hold for this machine and this run."
    )
