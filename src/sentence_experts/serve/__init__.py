"""Models over HTTP: requests for vectors share batches, whatever their routes and protocols."""
