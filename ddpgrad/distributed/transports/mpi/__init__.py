"""The transport through an MPI library, on one host or many."""
