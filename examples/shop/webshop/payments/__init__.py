"""payments: one payment after the other of an order, by a provider that calls back."""
