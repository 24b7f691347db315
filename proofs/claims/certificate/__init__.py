"""What the certificate relies on."""
