"""Programs to read and to run; the tests run each of them."""
