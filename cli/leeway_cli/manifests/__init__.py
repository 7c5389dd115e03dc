"""`leeway apply|get|diff|delete|pause|resume|schema`: reads and writes manifests."""
