"""The operator's tools: export and import, backup and restore, repair, migrate, doctor.

Each is a small module that a program may use as well; `fifoq.cli` gives them to people.
"""
