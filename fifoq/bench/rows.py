"""Every row of the queue's benchmark, by the name that `--rows` takes.

Rows of the design whose feature is not built yet are not listed.
"""

from __future__ import annotations

from fifoq.bench import (
    actor,
    backlog,
    compressing,
    delivery,
    durable,
    durable_actor,
    importing,
    memory,
    resources,
    spark,
    staging,
)
from fifoq.bench.measure import Group, on_loop

GROUPS = (
    Group("put-memory", on_loop(memory.put)),
    Group("take-memory", on_loop(memory.take)),
    Group("put-then-take", on_loop(memory.put_then_take)),
    Group("pipe", on_loop(memory.pipe)),
    Group("put-many-memory", on_loop(memory.put_many)),
    Group("put-many-os", on_loop(durable.put_many_os)),
    Group("put-many-sync", on_loop(durable.put_many_sync)),
    Group("busy-loop", on_loop(durable.busy_loop)),
    Group("one-sync", on_loop(durable.one_sync)),
    Group("64-sync", on_loop(durable.many_sync)),
    Group("lease-ack", on_loop(memory.lease_ack)),
    Group("64-lease", on_loop(delivery.lease_sync)),
    Group("delayed", on_loop(delivery.delayed)),
    Group("put-nowait", on_loop(memory.put_nowait)),
    Group("staging-put", on_loop(staging.staging_put)),
    Group("actor-tell", on_loop(actor.actor_tell)),
    Group("actor-ask", on_loop(actor.actor_ask)),
    Group("durable-actors", on_loop(durable_actor.durable_actors)),
    Group("durable-spawn", on_loop(durable_actor.spawning)),
    Group("durable-idle", durable_actor.idle_memory),
    Group("disk-bytes", on_loop(resources.disk_bytes)),
    Group("compression", on_loop(compressing.compression)),
    Group("open-backlog", backlog.open_backlog),
    Group("idle", on_loop(resources.idle)),
    Group("import", importing.import_time),
    Group("spark-scan", spark.needing_spark("Spark scan to noop, of Parquet", spark.scan)),
    Group("spark-stream", spark.needing_spark("Spark stream, of a batch scan", spark.stream)),
    Group("spark-plan", spark.plan),
    Group("spark-growth", spark.needing_spark("Spark scan, time per record", spark.growth)),
)
