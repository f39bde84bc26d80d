"""The ranks that a process hosts: how they run, what they see of the process, how far they are."""
