"""What gRPC's messages, names and statuses are in remoting, and the reverse. No connections, no clocks."""
