"""Fail-over: the members of a broker set choose their master through etcd (docs/failover.md)."""
