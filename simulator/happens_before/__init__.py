"""What happens before what: vector clocks, how knowledge moves, and the last accesses to each piece of memory."""
