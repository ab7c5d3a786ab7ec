"""Is it right in every order? Races, litmus programs, and the search for an order of threads that fails."""
