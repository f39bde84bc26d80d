"""The agreements between ranks: signatures compared before data moves, plain data, the order of sums."""
