"""The lab: what five studies measured, measured again beside today's servers.

A study is a module of `kvlab.studies`: cells to run, sections of the report, claims. A cell runs
once and leaves lines in `runs.jsonl`; the report is made of those lines and of nothing else.
"""
