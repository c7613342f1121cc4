"""Models over HTTP: requests of all routes and protocols share batches."""
