"""An example where attention sees what its CNN cannot: pages on which handwritten digits recur, under heavy noise."""
