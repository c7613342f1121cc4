"""What tests of several parts share: samples, servers, small models and tasks."""
