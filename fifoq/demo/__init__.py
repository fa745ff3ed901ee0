"""The demonstration: what fifoq is for, under load and killed in the middle, within a minute.

Clients put orders into a durable queue and wait for the disk. Durable actors, one for each account,
handle them and put an entry into the ledger. Spark drains the ledger into Parquet. The service is
killed with SIGKILL in the middle and started again. In the end the table is compared with what was
confirmed to the clients: nothing lost, each exactly once. `fifoq demo` and `./dev demo` run it.
"""
