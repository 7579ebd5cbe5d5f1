"""orders: placing, confirming, cancelling; the states of an order are decided here."""
