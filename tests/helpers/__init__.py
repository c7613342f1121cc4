"""Shared by tests of several parts: samples, servers, small models and tasks."""
