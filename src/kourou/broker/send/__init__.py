"""Sends: from the request to the record in the commit cycle, and the answer."""
