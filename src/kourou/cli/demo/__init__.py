"""`kourou demo`: a guided tour on a temporary cluster."""
