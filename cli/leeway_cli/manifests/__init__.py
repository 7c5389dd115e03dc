"""`leeway apply|get|diff|delete|scale|pause|resume|schema`: reads and writes manifests."""
