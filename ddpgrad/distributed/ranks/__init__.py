"""The ranks that a process hosts: how they run, and their view of the process and of each other."""
