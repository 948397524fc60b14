"""The few hot loops. Each has a slow, obvious twin in tests/reference."""
