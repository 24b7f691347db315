"""What rounding and soft attention can cost: bounds that engines and certificates are made of."""
