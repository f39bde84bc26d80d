"""`ddprun bench`: how training, and collectives, scale with ranks; and what they would do on more of them.

models        what is trained
training      one rank of a job that trains and says where its time went, on ddpgrad or PyTorch
collectives   one rank of a job that times collectives
jobs          starts such jobs in turn
machine       what a figure is a figure of
results       figures, tables and files
plots         pictures of them
cluster       what an all-reduce, and a step, would take on a cluster
"""
